from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine import (
    Engine,
    EngineConfig,
    EngineDeadError,
    EngineLoop,
    EngineRequest,
    InvalidParameterError,
    QueueFullError,
    SamplingParams,
    TokenDelta,
)

DEADLINE_S = 30.0


@dataclass
class Consumer:
    """Collects the deltas of one request."""

    deltas: list[TokenDelta] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    began: threading.Event = field(default_factory=threading.Event)

    def __call__(self, delta: TokenDelta) -> None:
        self.deltas.append(delta)
        self.began.set()
        if delta.finish_reason is not None:
            self.ended.set()

    def wait(self) -> str | None:
        assert self.ended.wait(DEADLINE_S), "the request never ended"
        return self.deltas[-1].finish_reason


@pytest.fixture
def engine(tiny_mixtral: Path) -> Engine:
    config = EngineConfig(model=str(tiny_mixtral), kv_cache_gib=0.01, max_num_seqs=2, max_waiting=2)
    return Engine(config)


@pytest.fixture
def loop(engine: Engine) -> Iterator[EngineLoop]:
    loop = EngineLoop(engine)
    loop.start()
    yield loop
    loop.stop()


def request(name: str, max_tokens: int = 400, prompt: tuple[int, ...] = (1, 2, 3)) -> EngineRequest:
    return EngineRequest(name, prompt, SamplingParams(max_tokens=max_tokens, seed=1, ignore_eos=True))


def wait_until(condition: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(int(DEADLINE_S / 0.02)):
        if condition():
            return
        done.wait(0.02)
    raise AssertionError("it did not happen")


def test_tokens_come_one_a_step_and_the_last_delta_says_why(loop: EngineLoop) -> None:
    consumer = Consumer()
    loop.submit(request("a", max_tokens=5), consumer)
    assert consumer.wait() == "length"
    assert [len(delta.token_ids) for delta in consumer.deltas] == [1] * 5
    assert [delta.finish_reason for delta in consumer.deltas[:-1]] == [None] * 4


def test_an_aborted_request_ends_and_its_blocks_return(loop: EngineLoop) -> None:
    consumer = Consumer()
    loop.submit(request("a"), consumer)
    assert consumer.began.wait(DEADLINE_S)
    loop.abort("a")
    assert consumer.wait() == "abort"
    assert len(consumer.deltas) < 400
    wait_until(lambda: loop.stats().num_free_blocks == loop.stats().num_blocks)
    loop.abort("a")
    loop.abort("never seen")


def test_a_waiting_request_can_be_aborted(loop: EngineLoop) -> None:
    running = [Consumer(), Consumer()]
    for index, consumer in enumerate(running):
        loop.submit(request(f"r{index}"), consumer)
    waiting = Consumer()
    loop.submit(request("w"), waiting)
    loop.abort("w")
    assert waiting.wait() == "abort"
    assert not any(delta.token_ids for delta in waiting.deltas)


def test_too_many_open_requests_are_refused_and_room_comes_back(loop: EngineLoop) -> None:
    consumers = [Consumer() for _ in range(4)]
    for index, consumer in enumerate(consumers):
        loop.submit(request(f"r{index}"), consumer)
    with pytest.raises(QueueFullError):
        loop.submit(request("one too many"), Consumer())
    for index, consumer in enumerate(consumers):
        loop.abort(f"r{index}")
        consumer.wait()
    again = Consumer()
    loop.submit(request("again", max_tokens=1), again)
    assert again.wait() == "length"


def test_a_request_that_cannot_be_served_is_refused_at_once(loop: EngineLoop) -> None:
    with pytest.raises(InvalidParameterError, match="empty"):
        loop.submit(request("a", prompt=()), Consumer())
    loop.submit(request("a", max_tokens=1), consumer := Consumer())
    assert consumer.wait() == "length"


def test_a_crash_answers_everyone_and_refuses_what_comes_later(
    engine: Engine, loop: EngineLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers = [Consumer() for _ in range(4)]
    for index, consumer in enumerate(consumers):
        loop.submit(request(f"r{index}"), consumer)
    assert consumers[0].began.wait(DEADLINE_S)

    def crash(step: object) -> None:
        raise MemoryError("no memory left")

    monkeypatch.setattr(engine._runner, "run", crash)
    for consumer in consumers:
        assert consumer.wait() == "error"
        assert "no memory left" in (consumer.deltas[-1].error or "")
    assert isinstance(loop.error, MemoryError)
    with pytest.raises(EngineDeadError, match="no memory left"):
        loop.submit(request("late"), Consumer())


def test_stopping_answers_open_requests(loop: EngineLoop) -> None:
    consumer = Consumer()
    loop.submit(request("a"), consumer)
    loop.stop(DEADLINE_S)
    assert consumer.wait() in {"error", "abort"}
    with pytest.raises(EngineDeadError):
        loop.submit(request("late"), Consumer())


def test_a_consumer_that_raises_takes_nobody_with_it(loop: EngineLoop) -> None:
    calls: list[TokenDelta] = []

    def broken(delta: TokenDelta) -> None:
        calls.append(delta)
        raise RuntimeError("its event loop is closed")

    healthy = Consumer()
    loop.submit(request("broken"), broken)
    loop.submit(request("healthy", max_tokens=50), healthy)
    assert healthy.wait() == "length"
    wait_until(lambda: loop.stats().num_running == 0)
    assert loop.error is None
    assert len(calls) < 10  # of 400: it was aborted


def test_lost_blocks_are_noticed_when_the_engine_falls_idle(engine: Engine, loop: EngineLoop) -> None:
    engine._tables.pool.allocate(1)
    loop.submit(request("a", max_tokens=1), consumer := Consumer())
    consumer.wait()
    wait_until(lambda: isinstance(loop.error, AssertionError))


def test_a_stall_shows_while_there_is_work(engine: Engine, loop: EngineLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop.stalled_s == 0.0
    release, entered, step = threading.Event(), threading.Event(), engine.step

    def stuck() -> list[TokenDelta]:
        entered.set()
        assert release.wait(DEADLINE_S)
        return step()

    monkeypatch.setattr(engine, "step", stuck)
    loop.submit(request("a", max_tokens=1), consumer := Consumer())
    assert entered.wait(DEADLINE_S)
    assert loop.stalled_s > 0.0
    release.set()
    consumer.wait()
