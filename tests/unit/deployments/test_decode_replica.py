from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from deployments.backend import ModelInfo, Refusal
from deployments.decode import Decode, join
from deployments.settings import load_settings
from engine import EngineRequest, SamplingParams, TokenDelta, TokenLogprobs
from tests.unit.deployments.conftest import MakeClient

LIMIT_S = 30.0


def request(name: str, max_tokens: int = 400) -> EngineRequest:
    params = SamplingParams(max_tokens=max_tokens, seed=1, ignore_eos=True, temperature=0.0)
    return EngineRequest(name, (1, 2, 3), params)


async def ids(stream: AsyncGenerator[TokenDelta | Refusal, None]) -> list[int]:
    out: list[int] = []
    async for item in stream:
        assert isinstance(item, TokenDelta)
        out += item.token_ids
    return out


async def until(decode: Decode, num_running: int) -> None:
    """Wait for that many requests to run; with none, for all blocks to be free. Stats are as of the last step."""
    async with asyncio.timeout(LIMIT_S):
        while (stats := decode.stats()).num_running != num_running:  # noqa: ASYNC110 - the engine is in another thread
            await asyncio.sleep(0.01)
    assert num_running or stats.num_free_blocks == stats.num_blocks


@pytest.fixture
def small(tiny_mixtral: Path) -> Iterator[Decode]:
    """One request runs, none waits."""
    args = {"path": str(tiny_mixtral), "served_name": "small"}
    engine = {"kv_cache_gib": 0.01, "max_num_seqs": 1, "max_waiting": 0, "num_threads": 1}
    decode = Decode(load_settings({"model": args, "engine": engine}))
    yield decode
    decode.stop()


def test_requests_run_side_by_side(decode: Decode) -> None:
    async def scenario() -> list[list[int]]:
        return list(await asyncio.gather(*(ids(decode.generate(request(f"r{i}", 20))) for i in range(6))))

    outputs = asyncio.run(scenario())
    assert [len(output) for output in outputs] == [20] * 6
    assert outputs.count(outputs[0]) == 6


def test_closing_the_generator_ends_the_request(decode: Decode) -> None:
    async def scenario() -> int:
        stream = decode.generate(request("gone", 500))
        await anext(stream)
        await until(decode, num_running=1)
        before = decode.stats().num_output_tokens
        await stream.aclose()
        await until(decode, num_running=0)
        return decode.stats().num_output_tokens - before

    assert asyncio.run(scenario()) < 400


def test_a_full_queue_is_a_429_and_then_there_is_room_again(small: Decode) -> None:
    async def scenario() -> tuple[list[TokenDelta | Refusal], list[int]]:
        first = small.generate(request("first", 500))
        await anext(first)
        await until(small, num_running=1)
        refused = [item async for item in small.generate(request("second"))]
        await first.aclose()
        await until(small, num_running=0)
        return refused, await ids(small.generate(request("third", 5)))

    (refusal,), third = asyncio.run(scenario())
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code, refusal.retry_after_s) == (429, "queue_full", 1)
    assert len(third) == 5


def test_a_request_that_can_never_run_names_its_field(decode: Decode) -> None:
    async def scenario() -> list[TokenDelta | Refusal]:
        return [item async for item in decode.generate(request("long", 10**6))]

    (refusal,) = asyncio.run(scenario())
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.param) == (400, "max_tokens")


def test_a_crash_answers_everyone_and_fails_the_health_check(small: Decode, make_client: MakeClient) -> None:
    async def before() -> ModelInfo | Refusal:
        return await small.describe()

    assert asyncio.run(before()) == ModelInfo("small", 512)

    def crash(*_: object) -> None:
        raise MemoryError("secret")

    small._engine._runner.run = crash  # type: ignore[method-assign,assignment]
    client = make_client(small)
    body = {"model": "demo", "prompt": "hi"}
    during = client.post("/v1/completions", json=body)
    assert (during.status_code, during.json()["error"]["code"]) == (500, "engine_error")
    assert "secret" not in during.text
    after = client.post("/v1/completions", json=body)
    assert (after.status_code, after.json()["error"]["code"]) == (503, "model_unavailable")
    assert after.headers["retry-after"] == "5"
    assert client.get("/health").status_code == 503
    with pytest.raises(RuntimeError, match="crashed"):
        small.check_health()


def test_a_model_that_fails_its_first_token_is_never_ready(tiny_mixtral: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("engine.model_runner.ModelRunner.run", crash)
    with pytest.raises(RuntimeError, match="no room"):
        Decode(load_settings({"model": {"path": str(tiny_mixtral)}, "engine": {"kv_cache_gib": 0.01}}))


def test_deltas_join_without_loss() -> None:
    logprobs = [TokenLogprobs(i, -float(i), ()) for i in range(3)]
    deltas = [
        TokenDelta("r", (0,), (logprobs[0],), num_cached_tokens=16, prompt_logprobs=(None,)),
        TokenDelta("r", (1,), (logprobs[1],), num_cached_tokens=16),
        TokenDelta("r", (2,), (logprobs[2],), "stop", 2, num_cached_tokens=16),
    ]
    assert join(deltas) == TokenDelta("r", (0, 1, 2), tuple(logprobs), "stop", 2, 16, (None,))
    assert join(deltas[:1]) is deltas[0]
