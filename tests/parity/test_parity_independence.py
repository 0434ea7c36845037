"""A request's output does not depend on what it shares a step with, on how its prompt was cut, on the cache, or on
whether it was preempted. In fp32, on the torch kernels; docs/architecture.md says where bf16 differs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine import LLM, RequestOutput, SamplingParams

NUM_REQUESTS = 32
MAX_TOKENS = 24


def prompts_and_params(
    vocab_size: int, num_requests: int = NUM_REQUESTS
) -> tuple[list[list[int]], list[SamplingParams]]:
    """Uneven prompts, some with a common beginning; greedy and seeded ones in turn, with different settings."""
    rng = random.Random(0)
    common = [rng.randrange(vocab_size) for _ in range(40)]
    prompts = [
        common[: rng.randrange(41)] + [rng.randrange(vocab_size) for _ in range(rng.randrange(1, 60))]
        for _ in range(num_requests)
    ]
    params = [
        SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)
        if index % 2
        else SamplingParams(
            temperature=0.7 + index / 40,
            top_p=0.8 + index / 200,
            top_k=(index % 3) * 20,
            frequency_penalty=0.3 * (index % 2),
            repetition_penalty=1.1,
            seed=index,
            max_tokens=MAX_TOKENS,
            ignore_eos=True,
        )
        for index in range(num_requests)
    ]
    return prompts, params


def tokens(outputs: list[RequestOutput]) -> list[tuple[int, ...]]:
    return [output.token_ids for output in outputs]


@pytest.fixture(scope="module")
def alone(tiny_mixtral: Path) -> list[tuple[int, ...]]:
    """Every request by itself, its prompt in one piece, without a cache: what it must always be."""
    llm = LLM(str(tiny_mixtral), dtype="float32", kv_cache_gib=0.01, enable_prefix_caching=False)
    prompts, params = prompts_and_params(259)
    found = [llm.generate(prompt, one)[0].token_ids for prompt, one in zip(prompts, params, strict=True)]
    assert len(set(found)) == NUM_REQUESTS
    return found


@pytest.mark.parametrize("caching", [False, True])
def test_among_31_others(tiny_mixtral: Path, alone: list[tuple[int, ...]], caching: bool) -> None:
    llm = LLM(str(tiny_mixtral), dtype="float32", kv_cache_gib=0.01, enable_prefix_caching=caching)
    prompts, params = prompts_and_params(259)
    assert tokens(llm.generate(prompts, params)) == alone


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 16, 31])
def test_with_the_prompt_cut_anywhere(tiny_mixtral: Path, alone: list[tuple[int, ...]], chunk: int) -> None:
    llm = LLM(
        str(tiny_mixtral),
        dtype="float32",
        kv_cache_gib=0.01,
        max_num_seqs=1,
        max_num_batched_tokens=chunk,
        enable_prefix_caching=False,
    )
    prompts, params = prompts_and_params(259)
    assert tokens(llm.generate(prompts, params)) == alone


def test_with_a_warm_cache(tiny_mixtral: Path, alone: list[tuple[int, ...]]) -> None:
    llm = LLM(str(tiny_mixtral), dtype="float32", kv_cache_gib=0.01)
    prompts, params = prompts_and_params(259)
    llm.generate(prompts, params)
    again = llm.generate(prompts, params)
    assert tokens(again) == alone
    assert sum(output.num_cached_tokens for output in again) > 500


@pytest.mark.parametrize("caching", [False, True])
def test_across_preemptions(tiny_mixtral: Path, alone: list[tuple[int, ...]], caching: bool) -> None:
    blocks = 30  # of 16 tokens; a block is 2 x 3 layers x 2 heads x 8 x 4 bytes x 16 tokens
    llm = LLM(
        str(tiny_mixtral),
        dtype="float32",
        kv_cache_gib=blocks * 2 * 3 * 2 * 8 * 4 * 16 / 2**30 + 1e-9,
        enable_prefix_caching=caching,
        max_num_batched_tokens=100,
    )
    prompts, params = prompts_and_params(259)
    assert tokens(llm.generate(prompts, params)) == alone
    assert llm.engine.stats().num_preemptions > 0


def test_the_demo_model_alone_and_among_others_in_chunks() -> None:
    prompts, params = prompts_and_params(49152, num_requests=8)
    by_itself = LLM("demo", dtype="float32", kv_cache_gib=0.2, enable_prefix_caching=False)
    expected = [by_itself.generate(prompt, one)[0].token_ids for prompt, one in zip(prompts, params, strict=True)]
    del by_itself
    together = LLM("demo", dtype="float32", kv_cache_gib=0.2, max_num_batched_tokens=64)
    assert tokens(together.generate(prompts, params)) == expected
