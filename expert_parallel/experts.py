"""The experts of one layer, held by one rank.

Shape suffixes: T tokens, K slots a token, S slots in all, D hidden, E experts, I intermediate size of one expert.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from expert_parallel.dispatch import combine, dispatch, weighted_sum
from kernels import linear, silu_mul


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """SwiGLU experts, stacked; rows 0..I of gate_up are the gate."""

    gate_up_E2ID: Tensor
    down_EDI: Tensor

    def __post_init__(self) -> None:
        num_experts, hidden, intermediate = self.down_EDI.shape
        assert self.gate_up_E2ID.shape == (num_experts, 2 * intermediate, hidden)

    @property
    def num_experts(self) -> int:
        return self.down_EDI.shape[0]


def run_moe(x_TD: Tensor, topk_ids_TK: Tensor, topk_weights_TK: Tensor, experts: ExpertWeights) -> Tensor:
    """Sends each token through its experts and adds their weighted outputs in slot order; [T, D].

    A slot whose id is -1 adds nothing.
    """
    if _takes_all(topk_ids_TK, experts.num_experts):
        return weighted_sum(_run_all(x_TD, experts), topk_weights_TK)
    tokens_SD, counts, handle = dispatch(x_TD, topk_ids_TK, topk_weights_TK, experts.num_experts)
    return combine(_run_groups(tokens_SD, counts, experts), handle)


def _takes_all(topk_ids_TK: Tensor, num_experts: int) -> bool:
    """Whether every token goes to every expert, slots in expert order: a gate with nothing to choose."""
    if topk_ids_TK.shape[1] != num_experts:
        return False
    return torch.equal(topk_ids_TK, torch.arange(num_experts, device=topk_ids_TK.device).expand_as(topk_ids_TK))


def _run_all(x_TD: Tensor, experts: ExpertWeights) -> Tensor:
    """y_TED of every expert for every token, with nothing sorted: one product up and one batched product down."""
    num_experts, hidden, intermediate = experts.down_EDI.shape
    gate_up_T_E2I = linear(x_TD, experts.gate_up_E2ID.view(-1, hidden))
    active_TEI = silu_mul(gate_up_T_E2I.view(-1, num_experts, 2 * intermediate))
    return torch.bmm(active_TEI.transpose(0, 1), experts.down_EDI.transpose(1, 2)).transpose(0, 1)


def _run_groups(tokens_SD: Tensor, counts: tuple[int, ...], experts: ExpertWeights) -> Tensor:
    """Runs each expert on its group of rows; rows after the last group are zero."""
    y_SD = torch.empty_like(tokens_SD)
    start = 0
    for expert, count in enumerate(counts):
        if count:
            rows = slice(start, start + count)
            active_NI = silu_mul(linear(tokens_SD[rows], experts.gate_up_E2ID[expert]))
            y_SD[rows] = linear(active_NI, experts.down_EDI[expert])
            start += count
    y_SD[start:] = 0
    return y_SD
