"""Expert execution written to be obviously right: one token and one slot at a time, in float64.

Shape suffixes: T tokens, K slots, D hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor

from expert_parallel.experts import ExpertWeights


def run_moe_reference(x_TD: Tensor, topk_ids_TK: Tensor, topk_weights_TK: Tensor, experts: ExpertWeights) -> Tensor:
    """What `run_moe` must return, up to rounding, [T, D] in float64."""
    out_TD = torch.zeros(x_TD.shape, dtype=torch.float64)
    for token, (ids, weights) in enumerate(zip(topk_ids_TK.tolist(), topk_weights_TK.tolist(), strict=True)):
        for expert, weight in zip(ids, weights, strict=True):
            if expert >= 0:
                out_TD[token] += weight * _expert(x_TD[token].double(), expert, experts)
    return out_TD


def _expert(x_D: Tensor, expert: int, experts: ExpertWeights) -> Tensor:
    intermediate = experts.down_EDI.shape[2]
    gate_up = experts.gate_up_E2ID[expert].double() @ x_D
    gate, up = gate_up[:intermediate], gate_up[intermediate:]
    return experts.down_EDI[expert].double() @ (gate * torch.sigmoid(gate) * up)
