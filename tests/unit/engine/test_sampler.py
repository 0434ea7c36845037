from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import EngineRequest, SamplingParams
from engine.logit_processing import adjust_logits, filter_logits
from engine.request import Request
from engine.sampler import sample, uniform

VOCAB = 40


def make_request(prompt: tuple[int, ...] = (1, 2), output: tuple[int, ...] = (), **options: Any) -> Request:
    params = SamplingParams(**{"seed": 0, **options})
    stop_ids = frozenset(params.stop_token_ids)
    request = Request(EngineRequest("r", prompt, params), stop_ids, 1000)
    for token_id in output:
        request.append(token_id)
    return request


def logits_of(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def reference_filter(logits: np.ndarray[Any, Any], params: SamplingParams) -> set[int]:
    """Tokens that stay possible, written out a token at a time."""
    scaled = logits.astype(np.float64) / params.temperature
    order = sorted(range(len(scaled)), key=lambda i: -scaled[i])
    if params.top_k:
        order = order[: params.top_k]
    weights = {i: np.exp(scaled[i] - scaled[order[0]]) for i in order}
    total = sum(weights.values())
    kept: list[int] = []
    mass = 0.0
    for i in order:
        if kept and params.top_p < 1.0 and mass >= params.top_p:
            break
        kept.append(i)
        mass += weights[i] / total
    return {i for i in kept if weights[i] >= params.min_p * weights[order[0]]}


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.1, 3.0),
    top_k=st.integers(0, VOCAB + 5),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 0.9999)),  # nearer to 1 rounding decides
    min_p=st.floats(0.0, 1.0),
)
@example(seed=0, temperature=1.0, top_k=0, top_p=1.0, min_p=1.0)
def test_filters_keep_what_a_slow_reference_keeps(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = logits_of(seed=seed)
    kept = set(torch.isfinite(filter_logits(logits, [params]))[0].nonzero().flatten().tolist())
    assert kept == reference_filter(logits[0].numpy(), params)
    assert int(logits.argmax()) in kept


def test_penalties_and_bias_by_their_formulas() -> None:
    request = make_request(
        prompt=(1, 2),
        output=(3, 3, 4),
        repetition_penalty=1.5,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        logit_bias={7: 4.0},
    )
    logits = logits_of()
    expected = logits[0].tolist()
    expected[7] += 4.0
    for token in (1, 2, 3, 4):
        expected[token] = expected[token] / 1.5 if expected[token] > 0 else expected[token] * 1.5
    for token, count in ((3, 2), (4, 1)):
        expected[token] -= 0.5 * count + 0.25
    adjust_logits(logits, [request])
    torch.testing.assert_close(logits[0], torch.tensor(expected))


def test_only_the_row_that_asks_is_adjusted() -> None:
    logits = logits_of(rows=2)
    before = logits.clone()
    adjust_logits(logits, [make_request(), make_request(logit_bias={0: 5.0})])
    assert torch.equal(logits[0], before[0])
    assert not torch.equal(logits[1], before[1])


def test_min_tokens_bans_stopping_until_then() -> None:
    for output, banned in (((5,), True), ((5, 6), False)):
        logits = logits_of()
        adjust_logits(logits, [make_request(output=output, min_tokens=2, stop_token_ids=(9,))])
        assert torch.isinf(logits[0, 9]).item() is banned


def test_greedy_takes_the_largest_and_so_does_a_vanishing_temperature() -> None:
    logits = logits_of(rows=2)
    best = logits.argmax(-1).tolist()
    drawn = sample(logits, [make_request(temperature=0.0), make_request(temperature=1e-30)])
    assert [token.token_id for token in drawn] == best


def test_draws_follow_the_distribution() -> None:
    """Chi-square over 20,000 seeds; 39 degrees of freedom, 0.999 quantile 72.1."""
    logits, count = logits_of(), 20_000
    drawn = sample(logits.expand(count, VOCAB).clone(), [make_request(seed=seed) for seed in range(count)])
    observed = Counter(token.token_id for token in drawn)
    expected = torch.softmax(logits[0].double(), -1) * count
    common = [i for i in range(VOCAB) if expected[i] >= 5]
    chi_square = sum((observed[i] - expected[i].item()) ** 2 / expected[i].item() for i in common)
    assert chi_square < 72.1
    assert abs(sum(observed[i] for i in common) - float(expected[common].sum())) < 200


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    logits = logits_of(rows=8, seed=3)
    requests = [make_request(output=(5,) * row, seed=row, top_p=0.9, temperature=1.3) for row in range(8)]
    together = [token.token_id for token in sample(logits.clone(), requests)]
    alone = [sample(logits[row : row + 1].clone(), [requests[row]])[0].token_id for row in range(8)]
    assert together == alone
    by_seed = {sample(logits[:1].clone(), [make_request(seed=seed)])[0].token_id for seed in range(30)}
    by_position = {sample(logits[:1].clone(), [make_request(output=(5,) * n)])[0].token_id for n in range(30)}
    assert min(len(by_seed), len(by_position)) > 1


def test_random_numbers_are_spread_over_the_unit_interval() -> None:
    numbers = np.array([uniform(seed, position) for seed in range(100) for position in range(100)])
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert np.abs(np.histogram(numbers, bins=10)[0] - 1000).max() < 120
    assert len(set(numbers.tolist())) == len(numbers)
    grid = numbers.reshape(100, 100)  # neighbours in seed and in position are unrelated
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.05
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.05


def test_the_last_possible_token_is_drawn_for_a_number_just_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sampler.uniform", lambda seed, position: 1.0 - 2.0**-53)
    count = 200  # some of which have probabilities whose sum is rounded below 1
    logits = logits_of(rows=count)
    logits[:, 20:] = -torch.inf
    drawn = [token.token_id for token in sample(logits, [make_request()] * count)]
    assert all(token is not None and token <= 19 for token in drawn)


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = logits_of()
    expected = torch.log_softmax(logits[0], -1)
    request = make_request(temperature=0.3, logit_bias={11: 100.0}, logprobs=3)
    drawn = sample(logits.clone(), [request])[0]
    assert drawn.token_id == 11
    assert drawn.logprobs is not None
    assert drawn.logprobs.logprob == pytest.approx(expected[11].item())
    values, ids = expected.topk(3)
    assert [token for token, _ in drawn.logprobs.top] == ids.tolist()
    assert [value for _, value in drawn.logprobs.top] == pytest.approx(values.tolist())


def test_zero_logprobs_give_the_sampled_token_alone() -> None:
    drawn = sample(logits_of(), [make_request(logprobs=0, temperature=0.0)])[0]
    assert drawn.logprobs is not None
    assert drawn.logprobs.top == ()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_end_only_their_own_request(bad: float) -> None:
    logits = logits_of(rows=2)
    logits[1, 5] = bad
    drawn = sample(logits, [make_request(logprobs=1), make_request(logprobs=1)])
    assert drawn[0].token_id is not None
    assert (drawn[1].token_id, drawn[1].logprobs) == (None, None)
