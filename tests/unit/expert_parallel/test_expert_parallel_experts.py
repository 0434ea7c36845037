"""Expert execution against a reference that goes token by token in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from expert_parallel import ExpertWeights, run_moe
from expert_parallel.dispatch import combine, dispatch, weighted_sum
from expert_parallel.reference import run_moe_reference

HIDDEN, INTERMEDIATE = 16, 12


def make_experts(num_experts: int, dtype: torch.dtype = torch.float32) -> ExpertWeights:
    generator = torch.Generator().manual_seed(num_experts)
    gate_up = torch.randn(num_experts, 2 * INTERMEDIATE, HIDDEN, generator=generator).to(dtype)
    return ExpertWeights(gate_up, torch.randn(num_experts, HIDDEN, INTERMEDIATE, generator=generator).to(dtype))


def make_routes(num_tokens: int, num_experts: int, top_k: int, skew: str) -> tuple[Tensor, Tensor]:
    """Ids and weights: spread at random, all on the same experts, or with a third of the slots empty."""
    generator = torch.Generator().manual_seed(num_tokens * 100 + top_k)
    scores = torch.rand(num_tokens, num_experts, generator=generator)
    if skew == "same experts":
        scores = scores[:1].expand(num_tokens, -1)
    weights, ids = scores.topk(top_k, dim=-1)
    if skew == "empty slots":
        ids = ids.masked_fill(torch.rand(ids.shape, generator=generator) < 0.34, -1)
    return ids, weights


ROUTES = list(itertools.product((1, 2, 33), ((8, 2), (8, 8), (5, 1)), ("random", "same experts", "empty slots")))


@pytest.mark.parametrize(("num_tokens", "experts_and_k", "skew"), ROUTES)
def test_every_route_gives_the_references_sum(num_tokens: int, experts_and_k: tuple[int, int], skew: str) -> None:
    num_experts, top_k = experts_and_k
    experts = make_experts(num_experts)
    ids, weights = make_routes(num_tokens, num_experts, top_k, skew)
    x = torch.randn(num_tokens, HIDDEN, generator=torch.Generator().manual_seed(1))
    expected = run_moe_reference(x, ids, weights, experts)
    torch.testing.assert_close(run_moe(x, ids, weights, experts).double(), expected, rtol=1e-4, atol=1e-4)


def test_a_gate_with_nothing_to_choose_gives_what_sorted_dispatch_gives() -> None:
    experts = make_experts(6)
    x = torch.randn(9, HIDDEN)
    weights = torch.rand(9, 6)
    ids = torch.arange(6).expand(9, -1)
    expected = run_moe(x, ids.flip(1), weights.flip(1), experts)  # flipped: not in expert order, so it is sorted
    torch.testing.assert_close(run_moe(x, ids, weights, experts), expected, rtol=1e-5, atol=1e-4)


def test_no_tokens_give_no_rows() -> None:
    empty_ids = torch.empty(0, 2, dtype=torch.int64)
    assert run_moe(torch.empty(0, HIDDEN), empty_ids, torch.empty(0, 2), make_experts(4)).shape == (0, HIDDEN)


def test_bfloat16_experts_are_summed_in_float32() -> None:
    # 256 + 1 + 1 + ... is 256 for ever in bfloat16, and 263 rounds to 264 from float32.
    y_TKD = torch.ones(1, 8, 1, dtype=torch.bfloat16)
    y_TKD[0, 0] = 256
    out = weighted_sum(y_TKD, torch.ones(1, 8))
    assert out.dtype == torch.bfloat16
    assert out.item() == 264


def test_slots_are_added_in_order() -> None:
    # In float32, 1e8 + 3 - 1e8 depends on the order: 0 from the left here, 3 from the right.
    y_TKD = torch.tensor([[[3.0], [1e8], [-1e8]], [[1e8], [-1e8], [3.0]]])
    assert weighted_sum(y_TKD, torch.ones(2, 3)).flatten().tolist() == [0.0, 3.0]


def test_dispatch_groups_tokens_by_expert_and_combine_undoes_it() -> None:
    x = torch.arange(4.0).unsqueeze(1)
    ids = torch.tensor([[2, 0], [0, -1], [2, 1], [0, 2]])
    weights = torch.tensor([[1.0, 10.0], [1.0, 10.0], [1.0, 10.0], [1.0, 10.0]])
    tokens, counts, handle = dispatch(x, ids, weights, num_experts=4)
    assert counts == (3, 1, 3, 0)
    assert [sorted(tokens.flatten().tolist()[a:b]) for a, b in ((0, 3), (3, 4), (4, 7))] == [[0, 1, 3], [2], [0, 2, 3]]
    by_row = torch.tensor([100.0] * 3 + [200.0] + [300.0] * 3 + [0.0]).unsqueeze(1)
    assert combine(by_row, handle).flatten().tolist() == [1300, 100, 2300, 3100]
