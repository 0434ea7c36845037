from __future__ import annotations

import math

import pytest
import torch

from router import Gate, GateSpec


def test_the_likeliest_experts_with_their_softmax_over_all() -> None:
    gate = Gate(torch.tensor([[0.0], [2.0], [1.0], [-1.0]]), GateSpec(4, 2, renormalize=False))
    ids, weights = gate(torch.tensor([[1.0], [-1.0]]))
    total = sum(math.exp(logit) for logit in (0, 2, 1, -1))
    assert ids.tolist() == [[1, 2], [3, 0]]
    assert ids.dtype == torch.int64
    assert weights[0].tolist() == pytest.approx([math.exp(2) / total, math.exp(1) / total])


def test_renormalized_weights_sum_to_one() -> None:
    generator = torch.Generator().manual_seed(0)
    gate = Gate(torch.randn(16, 8, generator=generator), GateSpec(16, 3, renormalize=True))
    _, weights = gate(torch.randn(5, 8, generator=generator))
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))


def test_scores_are_float32_in_a_bfloat16_model() -> None:
    gate = Gate(torch.randn(8, 4, dtype=torch.bfloat16), GateSpec(8, 2, renormalize=True))
    _, weights = gate(torch.randn(3, 4, dtype=torch.bfloat16))
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(3), rtol=1e-6, atol=1e-6)


def test_with_nothing_to_choose_slots_are_in_expert_order() -> None:
    gate = Gate(torch.tensor([[0.0], [2.0], [1.0]]), GateSpec(3, 3, renormalize=True))
    ids, weights = gate(torch.tensor([[1.0]]))
    assert ids.tolist() == [[0, 1, 2]]
    torch.testing.assert_close(weights, torch.softmax(torch.tensor([[0.0, 2.0, 1.0]]), -1))


@pytest.mark.parametrize("top_k", [0, 5])
def test_more_experts_than_there_are_is_refused(top_k: int) -> None:
    with pytest.raises(ValueError, match=f"{top_k} of 4 experts"):
        GateSpec(4, top_k, renormalize=True)
