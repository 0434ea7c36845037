"""The gate of one Mixture-of-Experts layer: token -> experts and their weights.

Shape suffixes: T tokens, D hidden, E experts, K slots (experts a token).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class GateSpec:
    """How a family routes: softmax over all experts, the `top_k` likeliest, weights made to sum to 1 if `renormalize`.

    Raises:
        ValueError: a token cannot take `top_k` of `num_experts` experts.
    """

    num_experts: int
    top_k: int
    renormalize: bool

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.num_experts:
            raise ValueError(f"a token cannot take {self.top_k} of {self.num_experts} experts")


class Gate:
    """Routes tokens by one linear layer, as `spec` says."""

    def __init__(self, weight_ED: Tensor, spec: GateSpec) -> None:
        assert weight_ED.shape[0] == spec.num_experts
        self.spec = spec
        self._weight_ED = weight_ED
        self._all_ids_E = torch.arange(spec.num_experts, device=weight_ED.device)

    def __call__(self, hidden_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns topk_ids_TK (int64) and topk_weights_TK (float32).

        Logits are in the model's dtype and scores in float32, as the families were trained. Slots go from the likeliest
        expert down; with nothing to choose (top_k == num_experts) they are in expert order.
        """
        scores_TE = torch.softmax(functional.linear(hidden_TD, self._weight_ED), dim=-1, dtype=torch.float32)
        if self.spec.top_k == self.spec.num_experts:
            topk_weights_TK = scores_TE
            topk_ids_TK = self._all_ids_E.expand(hidden_TD.shape[0], -1)
        else:
            topk_weights_TK, topk_ids_TK = torch.topk(scores_TE, self.spec.top_k, dim=-1)
        if self.spec.renormalize:
            topk_weights_TK = topk_weights_TK / topk_weights_TK.sum(dim=-1, keepdim=True)
        return topk_ids_TK, topk_weights_TK
