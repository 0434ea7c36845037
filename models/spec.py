"""What a checkpoint's decoder is made of, as data.

One decoder reads these; a family differs from another by its spec, not by its code.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from router import GateSpec


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Grouped-query attention: query head h reads key-value head h // (num_heads // num_kv_heads).

    `qk_norm` is an RMSNorm over each query and key head before the rotation.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every frequency divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's: wavelengths over original_max_positions / low_freq_factor are stretched by `factor`, those under
    original_max_positions / high_freq_factor kept, those between interpolated."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary positions over the whole head, half-split."""

    theta: float
    scaling: LinearScaling | Llama3Scaling | None = None


@dataclass(frozen=True, slots=True)
class DenseSpec:
    """A SwiGLU feed-forward layer."""

    intermediate_size: int
    bias: bool = False


@dataclass(frozen=True, slots=True)
class MoeSpec:
    """A layer of SwiGLU experts of `intermediate_size` each, and its gate."""

    intermediate_size: int
    gate: GateSpec


FfnSpec = DenseSpec | MoeSpec


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A pre-norm decoder. `ffns` has one entry a layer; `torch_dtype` is the checkpoint's own."""

    architecture: str
    vocab_size: int
    hidden_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    torch_dtype: torch.dtype
    attention: AttentionSpec
    rope: RopeSpec
    ffns: tuple[FfnSpec, ...]

    @property
    def num_layers(self) -> int:
        return len(self.ffns)

    @property
    def num_kv_heads(self) -> int:
        return self.attention.num_kv_heads

    @property
    def head_dim(self) -> int:
        return self.attention.head_dim
