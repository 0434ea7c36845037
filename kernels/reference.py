"""Every operation in plain torch, on any device: what the fast kernels are tested against.

Shape suffixes: T tokens, D hidden, H heads (Hq query, Hkv key and value), d head_dim, h half of it, B cache blocks,
b slots of a block, S tokens of one request's context, Q its tokens in this step, N rows out, M rows in, I intermediate.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.paged import PagedBatch


def linear(x_TM: Tensor, weight_NM: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """x W^T + b, [T, N]."""
    return functional.linear(x_TM, weight_NM, bias_N)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in float32, returned in x's dtype.

    `weight` is [D], or broadcasts against x where each head has its own.
    """
    if weight.dim() == 1:
        return functional.rms_norm(x, x.shape[-1:], weight, eps)
    return functional.rms_norm(x, x.shape[-1:], None, eps) * weight


def silu_mul(gate_up_T2I: Tensor) -> Tensor:
    """silu(gate) * up, [T, I]; the first half of the last axis is the gate."""
    gate_TI, up_TI = gate_up_T2I.chunk(2, dim=-1)
    return functional.silu(gate_TI) * up_TI


def apply_rope(x_THd: Tensor, cos_T1h: Tensor, sin_T1h: Tensor) -> Tensor:
    """Rotates (first half, second half) pairs of each head (RoFormer, half-split), in float32, back to x's dtype."""
    first, second = x_THd.chunk(2, dim=-1)
    rotated = torch.cat((first * cos_T1h - second * sin_T1h, second * cos_T1h + first * sin_T1h), dim=-1)
    return rotated.to(x_THd.dtype)


def store_kv(k_THd: Tensor, v_THd: Tensor, k_cache_BbHd: Tensor, v_cache_BbHd: Tensor, slot_mapping_T: Tensor) -> None:
    """Writes the new tokens' keys and values into their slots of the cache."""
    for cache_BbHd, new_THd in ((k_cache_BbHd, k_THd), (v_cache_BbHd, v_THd)):
        cache_BbHd.view(-1, *new_THd.shape[1:]).index_copy_(0, slot_mapping_T, new_THd)


def paged_attention(
    q_THd: Tensor, k_cache_BbHd: Tensor, v_cache_BbHd: Tensor, batch: PagedBatch, scale: float
) -> Tensor:
    """Causal attention of each request's new tokens over its own cached context, [T, Hq, d].

    The cache already holds the new tokens. Requests are taken one at a time and never padded to one another, so that
    a request's result does not depend on its neighbours.
    """
    out_THd = torch.empty_like(q_THd)
    for request, context_len in enumerate(batch.context_lens):
        start, end = batch.query_starts[request : request + 2]
        if start == end:
            continue
        num_blocks = -(-context_len // batch.block_size)
        block_ids = batch.block_tables_RN[request, :num_blocks]
        k_SHd = k_cache_BbHd.index_select(0, block_ids).flatten(0, 1)[:context_len]
        v_SHd = v_cache_BbHd.index_select(0, block_ids).flatten(0, 1)[:context_len]
        out_THd[start:end] = _attend(q_THd[start:end], k_SHd, v_SHd, scale)
    return out_THd


def _attend(q_QHd: Tensor, k_SHd: Tensor, v_SHd: Tensor, scale: float) -> Tensor:
    """One request: its last Q tokens over all S; query i sees the first S - Q + i + 1 keys."""
    num_queries, context_len = q_QHd.shape[0], k_SHd.shape[0]
    k_1HSd, v_1HSd = k_SHd.transpose(0, 1).unsqueeze(0), v_SHd.transpose(0, 1).unsqueeze(0)
    if num_queries == 1:
        # The query heads that share a key head become its queries: no mask, and no copy of the keys for each.
        grouped = q_QHd.view(1, k_SHd.shape[1], -1, q_QHd.shape[-1])
        return functional.scaled_dot_product_attention(grouped, k_1HSd, v_1HSd, scale=scale).view_as(q_QHd)
    visible_QS = torch.ones(num_queries, context_len, dtype=torch.bool, device=q_QHd.device)
    visible_QS = visible_QS.tril(diagonal=context_len - num_queries)
    out_1HQd = functional.scaled_dot_product_attention(
        q_QHd.transpose(0, 1).unsqueeze(0), k_1HSd, v_1HSd, attn_mask=visible_QS, scale=scale, enable_gqa=True
    )
    return out_1HQd.squeeze(0).transpose(0, 1)
