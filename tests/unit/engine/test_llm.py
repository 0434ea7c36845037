"""The engine end to end on a tiny random model: what comes back, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import LLM, InvalidParameterError, SamplingParams
from engine.llm import Prompt
from engine.settings import EngineConfig

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def shared_llm(tiny_mixtral: Path) -> LLM:
    return LLM(str(tiny_mixtral), kv_cache_gib=0.01, max_num_batched_tokens=64)


@pytest.fixture
def llm(shared_llm: LLM) -> Iterator[LLM]:
    shared_llm.engine.drop_prefix_cache()
    yield shared_llm
    shared_llm.engine.check_integrity()
    stats = shared_llm.engine.stats()
    assert stats.num_free_blocks == stats.num_blocks
    assert stats.num_running == stats.num_waiting == 0


@pytest.fixture(scope="module")
def oracle(tiny_mixtral: Path) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(tiny_mixtral, dtype=torch.float32)
    return model


@torch.inference_mode()
def oracle_logprobs(oracle: torch.nn.Module, token_ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = oracle(torch.tensor([token_ids])).logits[0]
    return torch.log_softmax(logits.float(), -1)


def test_prompts_may_be_strings_ids_or_chats(llm: LLM) -> None:
    chat = [{"role": "user", "content": "hi"}]
    as_ids = llm.tokenizer.encode_chat([dict(message) for message in chat])
    prompts: list[Prompt] = ["hello", llm.tokenizer.encode("hello"), chat, as_ids]
    outputs = llm.generate(prompts, GREEDY)
    assert outputs[0].token_ids == outputs[1].token_ids
    assert outputs[2].token_ids == outputs[3].token_ids
    assert outputs[2].prompt_token_ids == tuple(as_ids)
    assert llm.generate("hello", GREEDY)[0].token_ids == outputs[0].token_ids
    assert llm.generate(as_ids, GREEDY)[0].token_ids == outputs[2].token_ids


def test_greedy_tokens_and_logprobs_are_the_oracles(llm: LLM, oracle: torch.nn.Module) -> None:
    output = llm.generate("abc", replace(GREEDY, logprobs=5))[0]
    assert output.logprobs is not None
    logprobs = oracle_logprobs(oracle, [*output.prompt_token_ids, *output.token_ids])
    for index, entry in enumerate(output.logprobs):
        expected = logprobs[len(output.prompt_token_ids) - 1 + index]
        assert entry.token_id == output.token_ids[index] == int(expected.argmax())
        assert entry.logprob == pytest.approx(expected.max().item(), abs=1e-4)
        assert [value for _, value in entry.top] == pytest.approx(expected.topk(5).values.tolist(), abs=1e-4)


def test_prompt_logprobs_are_the_oracles_also_in_chunks_and_with_a_warm_cache(
    llm: LLM, oracle: torch.nn.Module
) -> None:
    prompt = llm.tokenizer.encode("the quick brown fox jumps over the lazy dog " * 4)
    assert len(prompt) > 2 * 64
    llm.generate(prompt, GREEDY)
    output = llm.generate(prompt, replace(GREEDY, prompt_logprobs=2))[0]
    assert output.num_cached_tokens == 0
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    expected = oracle_logprobs(oracle, prompt)
    for index, entry in enumerate(output.prompt_logprobs[1:]):
        assert entry is not None
        assert entry.token_id == prompt[index + 1]
        assert entry.logprob == pytest.approx(expected[index, prompt[index + 1]].item(), abs=1e-4)
    assert len(output.prompt_logprobs) == len(prompt)


def test_a_prompt_preempted_halfway_keeps_the_logprobs_it_has(tiny_mixtral: Path, oracle: torch.nn.Module) -> None:
    """9 blocks: the first request outgrows its share 25 tokens after the second began, at 2 tokens a step, on 70."""
    bytes_per_block = 2 * 3 * 2 * 8 * 4 * 16
    llm = LLM(str(tiny_mixtral), kv_cache_gib=9.5 * bytes_per_block / 2**30, max_num_seqs=2, max_num_batched_tokens=3)
    prompt = [(7 * i) % 256 for i in range(70)]
    output = llm.generate(
        [[5] * 40, prompt], [replace(GREEDY, max_tokens=40), replace(GREEDY, max_tokens=1, prompt_logprobs=0)]
    )[1]
    assert llm.engine.stats().num_preemptions == 1
    assert output.prompt_logprobs is not None
    found = [entry.logprob for entry in output.prompt_logprobs if entry is not None]
    expected = oracle_logprobs(oracle, prompt)[range(69), prompt[1:]]
    assert found == pytest.approx(expected.tolist(), abs=1e-4)


def test_cached_tokens_are_zero_when_cold_and_whole_blocks_when_warm(llm: LLM) -> None:
    prompt = list(range(40))
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 0
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 32
    assert llm.generate(prompt, GREEDY, cache_salt="other")[0].num_cached_tokens == 0
    assert llm.generate(prompt[:32], GREEDY)[0].num_cached_tokens == 16


def test_choices_differ_and_each_can_be_had_alone(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=10, temperature=1.0, ignore_eos=True)
    choices = llm.generate("abc", params)[0].choices
    assert [choice.index for choice in choices] == [0, 1, 2]
    assert len({choice.token_ids for choice in choices}) == 3
    for choice in choices:
        assert llm.generate("abc", params.for_choice(choice.index))[0].token_ids == choice.token_ids


def test_without_a_seed_two_runs_differ(llm: LLM) -> None:
    params = SamplingParams(max_tokens=20, temperature=2.0, ignore_eos=True)
    assert llm.generate("abc", params)[0].token_ids != llm.generate("abc", params)[0].token_ids


def test_a_stop_string_ends_the_request_and_frees_it(llm: LLM) -> None:
    whole = llm.generate("abc", replace(GREEDY, max_tokens=40))[0]
    stop = whole.text[5:7]
    before = llm.engine.stats().num_output_tokens
    output = llm.generate("abc", replace(GREEDY, max_tokens=40, stop=(stop,)))[0]
    assert output.text == whole.text[: whole.text.index(stop)]
    assert (output.finish_reason, output.choices[0].stop_reason) == ("stop", stop)
    assert llm.engine.stats().num_output_tokens - before == len(output.token_ids) < 40


def test_a_stop_token_ends_the_request_and_min_tokens_puts_it_off(llm: LLM) -> None:
    whole = llm.generate("abc", GREEDY)[0]
    stop_id = whole.token_ids[3]
    output = llm.generate("abc", replace(GREEDY, stop_token_ids=(stop_id,)))[0]
    assert output.token_ids == whole.token_ids[: whole.token_ids.index(stop_id) + 1]
    assert (output.finish_reason, output.choices[0].stop_reason) == ("stop", stop_id)
    later = llm.generate("abc", replace(GREEDY, stop_token_ids=(stop_id,), min_tokens=10))[0]
    assert len(later.token_ids) >= 10
    assert stop_id not in later.token_ids[:10]


def test_eos_ends_a_request_unless_ignored(llm: LLM) -> None:
    eos = min(llm.tokenizer.eos_token_ids)
    towards_eos = SamplingParams(temperature=0.0, max_tokens=5, logit_bias={eos: 100.0})
    output = llm.generate("abc", towards_eos)[0]
    assert (output.token_ids, output.text, output.finish_reason) == ((eos,), "", "stop")
    ignoring = llm.generate("abc", replace(towards_eos, ignore_eos=True))[0]
    assert (ignoring.token_ids, ignoring.finish_reason) == ((eos,) * 5, "length")


def test_a_request_runs_to_the_models_limit_and_no_further(llm: LLM) -> None:
    prompt = list(range(200)) * 2
    output = llm.generate(prompt, SamplingParams(temperature=0.0, ignore_eos=True))[0]
    assert len(prompt) + len(output.token_ids) == 512
    assert output.finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "params", "param"),
    [
        ([], GREEDY, "prompt"),
        ("", GREEDY, "prompt"),
        ([1] * 512, GREEDY, "prompt"),
        ([1] * 100_000, GREEDY, "prompt"),
        ([259], GREEDY, "prompt"),
        ([-1], GREEDY, "prompt"),
        ([1] * 500, replace(GREEDY, max_tokens=13), "max_tokens"),
        ([1], replace(GREEDY, max_tokens=10**9), "max_tokens"),
        ([1], replace(GREEDY, logit_bias={259: 1.0}), "logit_bias"),
        ([1], replace(GREEDY, stop_token_ids=(1000,)), "stop_token_ids"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    llm: LLM, prompt: str | list[int], params: SamplingParams, param: str
) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        llm.generate([prompt, [1, 2]], params)
    assert caught.value.param == param


def test_waste_is_below_one_block_a_request(llm: LLM) -> None:
    sizes = [1, 15, 16, 17, 33, 100]
    originals = llm.engine.step
    seen: list[int] = []

    def step() -> object:
        deltas = originals()
        stats = llm.engine.stats()
        assert stats.num_waste_slots < max(1, stats.num_running) * llm.engine.config.block_size
        seen.append(stats.num_running)
        return deltas

    llm.engine.step = step  # type: ignore[method-assign, assignment]
    try:
        llm.generate([[7] * size for size in sizes], GREEDY)
    finally:
        llm.engine.step = originals  # type: ignore[method-assign]
    assert max(seen) == len(sizes)


def test_nan_logits_end_a_request_with_an_error(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    model = llm.engine._runner.model
    logits = model.logits
    monkeypatch.setattr(model, "logits", lambda hidden: logits(hidden) * torch.nan)
    with pytest.raises(RuntimeError, match="not finite"):
        llm.generate("abc", GREEDY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_cache_gib": 1e-9}, "kv_cache_gib"),
        ({"max_model_len": 513}, "max_model_len"),
        ({"device": "cuda"}, "no GPU"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tiny_mixtral: Path, options: dict[str, object], message: str) -> None:
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=message):
        LLM(str(tiny_mixtral), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["block_size", "max_num_seqs", "max_num_batched_tokens", "num_threads"])
def test_settings_below_one_are_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        EngineConfig(**{field: 0})  # type: ignore[arg-type]
