"""The tensors behind the block ids.

Shape suffixes: B blocks of the pool, S slots a block, H key-value heads, d head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class KVTensors:
    """Keys and values, one pair a layer, each [B, S, H, d]."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))


def bytes_per_block(num_layers: int, num_kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers: 2 x layers x kv_heads x head_dim x bytes a token, times its tokens."""
    return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize * block_size


def allocate_kv(
    num_blocks: int,
    *,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> KVTensors:
    """A zeroed cache. Zeroed, so that its pages are really there and a machine too small says so now."""
    shape = (num_blocks, block_size, num_kv_heads, head_dim)

    def one_a_layer() -> tuple[Tensor, ...]:
        return tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers))

    return KVTensors(one_a_layer(), one_a_layer())
