"""Moving tokens to their experts and back.

Shape suffixes: T tokens, K slots a token, S = T * K slots in all, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class DispatchHandle:
    """What `combine` needs to undo a `dispatch`: order_S[i] is the slot whose token stands at row i of the groups."""

    order_S: Tensor
    topk_weights_TK: Tensor


def dispatch(
    x_TD: Tensor, topk_ids_TK: Tensor, topk_weights_TK: Tensor, num_experts: int
) -> tuple[Tensor, tuple[int, ...], DispatchHandle]:
    """Groups tokens by expert.

    Returns tokens_SD, the number of rows of each expert in order, and the handle for `combine`. Slots without an expert
    (id -1) stand after all groups.
    """
    ids_S = topk_ids_TK.reshape(-1)
    ids_S = torch.where(ids_S < 0, num_experts, ids_S)
    order_S = torch.argsort(ids_S, stable=True)
    counts = tuple(torch.bincount(ids_S, minlength=num_experts)[:num_experts].tolist())
    tokens_SD = x_TD.index_select(0, order_S // topk_ids_TK.shape[1])
    return tokens_SD, counts, DispatchHandle(order_S, topk_weights_TK)


def combine(y_SD: Tensor, handle: DispatchHandle) -> Tensor:
    """Each token's weighted sum of its experts' outputs, [T, D] in y's dtype.

    Added in slot order in float32, whatever order the groups came in.
    """
    by_slot_SD = torch.empty_like(y_SD).index_copy_(0, handle.order_S, y_SD)
    return weighted_sum(by_slot_SD.view(*handle.topk_weights_TK.shape, y_SD.shape[1]), handle.topk_weights_TK)


def weighted_sum(y_TKD: Tensor, weights_TK: Tensor) -> Tensor:
    """sum over k of weights_TK * y_TKD, strictly from slot 0 up, in float32; [T, D] in y's dtype."""
    slots = zip(y_TKD.unbind(dim=1), weights_TK.unsqueeze(-1).unbind(dim=1), strict=True)
    out_TD = torch.zeros(y_TKD.shape[0], y_TKD.shape[2], dtype=torch.float32, device=y_TKD.device)
    for y_TD, weight_T1 in slots:
        out_TD += y_TD * weight_T1  # rounded twice, not fused: the same bits on every path
    return out_TD.to(y_TKD.dtype)
