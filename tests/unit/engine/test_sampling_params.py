from __future__ import annotations

from typing import Any

import pytest

from engine import InvalidParameterError, SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("min_tokens", -1),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1.5),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0.0),
        ("seed", 2**63),
        ("n", 0),
        ("n", 1000),
        ("stop", ("a", "b", "c", "d", "e")),
        ("stop", ("a", "")),
        ("logit_bias", {5: 101.0}),
        ("logit_bias", {5: float("nan")}),
        ("logprobs", 21),
        ("prompt_logprobs", -1),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field


def test_min_tokens_beyond_max_tokens_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="min_tokens"):
        SamplingParams(max_tokens=3, min_tokens=4)


def test_choices_differ_by_seed_and_the_first_keeps_it() -> None:
    params = SamplingParams(n=3, seed=7)
    seeds = [params.for_choice(index).seed for index in range(3)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert seeds == [params.for_choice(index).seed for index in range(3)]


def test_one_stop_string_may_be_given_bare() -> None:
    assert SamplingParams(stop="end").stop == ("end",)  # type: ignore[arg-type]
