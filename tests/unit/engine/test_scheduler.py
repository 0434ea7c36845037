"""The scheduler with a pretended model: every sampled token is a number, so no torch is needed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import EngineRequest, SamplingParams
from engine.request import Request
from engine.scheduler import ScheduledRequest, Scheduler
from kv_cache import BlockPool, BlockTables

BLOCK = 4


def make_scheduler(num_blocks: int = 64, max_num_seqs: int = 8, budget: int = 16, caching: bool = True) -> Scheduler:
    tables = BlockTables(BlockPool(num_blocks), BLOCK, caching)
    return Scheduler(tables, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget)


def make_request(name: str, prompt: list[int], max_tokens: int) -> Request:
    source = EngineRequest(name, tuple(prompt), SamplingParams(max_tokens=max_tokens, seed=0))
    return Request(source, frozenset(), len(prompt) + max_tokens)


@dataclass
class Simulation:
    """Runs steps and checks after each what must always hold."""

    scheduler: Scheduler
    finished: list[str] = field(default_factory=list)
    written: dict[int, tuple[int, ...]] = field(default_factory=dict)  # block -> the tokens its slots stand for

    def step(self) -> list[ScheduledRequest]:
        step = self.scheduler.schedule()
        assert sum(item.num_tokens for item in step) <= self.scheduler.max_num_batched_tokens
        assert len({item.request.request_id for item in step}) == len(step)
        assert len(step) <= self.scheduler.max_num_seqs
        for item in step:
            self._write(item)
        for item in step:
            self._read(item)
        for item in step:
            if item.samples and item.request.append(len(item.request.token_ids)) is not None:
                self.scheduler.remove(item.request)
                self.finished.append(item.request.request_id)
        self.scheduler.check_integrity()
        return step

    def _write(self, item: ScheduledRequest) -> None:
        assert item.request.table is not None
        for position in range(item.start, item.start + item.num_tokens):
            block = item.request.table.blocks[position // BLOCK]
            held = self.written.get(block, ())[: position % BLOCK]
            self.written[block] = (*held, item.request.token_ids[position])

    def _read(self, item: ScheduledRequest) -> None:
        """Every token of the context stands where the request's table says, or attention would see another's."""
        assert item.request.table is not None
        context = item.request.token_ids[: item.start + item.num_tokens]
        for index in range(0, len(context), BLOCK):
            expected = tuple(context[index : index + BLOCK])
            assert self.written[item.request.table.blocks[index // BLOCK]][: len(expected)] == expected


def test_decodes_come_first_and_prompts_share_what_is_left() -> None:
    simulation = Simulation(make_scheduler(budget=8))
    decoding = make_request("a", [1, 2, 3], max_tokens=20)
    simulation.scheduler.add(decoding)
    simulation.step()
    simulation.scheduler.add(make_request("b", list(range(100, 120)), max_tokens=2))
    assert [(item.request.request_id, item.num_tokens) for item in simulation.step()] == [("a", 1), ("b", 7)]
    assert [(item.request.request_id, item.start, item.num_tokens) for item in simulation.step()] == [
        ("a", 4, 1),
        ("b", 7, 7),
    ]


def test_a_long_prompt_does_not_hold_up_the_decodes_before_it() -> None:
    simulation = Simulation(make_scheduler(num_blocks=400, budget=16))
    for name in "abc":
        simulation.scheduler.add(make_request(name, [ord(name)], max_tokens=30))
    simulation.step()
    simulation.scheduler.add(make_request("long", list(range(1000, 1200)), max_tokens=1))
    for _ in range(10):
        assert {"a", "b", "c"} <= {item.request.request_id for item in simulation.step()}


def test_nobody_overtakes_the_head_of_the_queue() -> None:
    simulation = Simulation(make_scheduler(num_blocks=8))
    simulation.scheduler.add(make_request("first", list(range(16)), max_tokens=8))
    simulation.step()
    simulation.scheduler.add(make_request("big", list(range(100, 120)), max_tokens=2))
    simulation.scheduler.add(make_request("small", [5], max_tokens=1))
    while "big" not in simulation.finished:
        simulation.step()
    assert simulation.finished[0] == "first"
    assert simulation.scheduler.num_kv_waits > 0


def test_the_youngest_is_preempted_and_the_oldest_never() -> None:
    simulation = Simulation(make_scheduler(num_blocks=8, budget=32, caching=False))
    old = make_request("old", list(range(8)), max_tokens=20)
    young = make_request("young", list(range(50, 58)), max_tokens=20)
    simulation.scheduler.add(old)
    simulation.scheduler.add(young)
    while simulation.scheduler.has_work:
        simulation.step()
    assert simulation.finished == ["old", "young"]
    assert old.num_preemptions == 0
    assert young.num_preemptions > 0


def test_a_request_of_the_same_step_shares_what_the_first_is_about_to_compute() -> None:
    simulation = Simulation(make_scheduler(budget=64))
    prompt = list(range(20))
    simulation.scheduler.add(make_request("a", prompt, max_tokens=2))
    simulation.scheduler.add(make_request("b", prompt, max_tokens=2))
    assert [(item.start, item.num_tokens) for item in simulation.step()] == [(0, 20), (16, 4)]


def test_a_budget_too_small_for_the_decodes_is_refused() -> None:
    with pytest.raises(ValueError, match="max_num_batched_tokens"):
        make_scheduler(max_num_seqs=8, budget=7)


arrival = st.tuples(
    st.integers(0, 6),  # steps to wait before it comes
    st.integers(1, 30),  # prompt tokens
    st.integers(1, 20),  # output tokens
    st.integers(0, 2),  # which of three common prefixes
    st.one_of(st.none(), st.integers(0, 25)),  # aborted after so many steps
)


@settings(max_examples=300, deadline=None)
@given(
    arrivals=st.lists(arrival, min_size=1, max_size=25),
    num_blocks=st.integers(13, 40),
    max_num_seqs=st.integers(1, 8),
    extra_budget=st.integers(0, 20),
    caching=st.booleans(),
)
def test_no_block_no_request_is_lost_and_nobody_starves(
    arrivals: list[tuple[int, int, int, int, int | None]],
    num_blocks: int,
    max_num_seqs: int,
    extra_budget: int,
    caching: bool,
) -> None:
    simulation = Simulation(make_scheduler(num_blocks, max_num_seqs, max_num_seqs + extra_budget, caching))
    scheduler = simulation.scheduler
    open_requests: dict[str, tuple[Request, int | None]] = {}
    aborted: set[str] = set()
    # Alone, each needs at most prompt/budget + output steps; recomputing after preemptions multiplies that, not more.
    pending, limit = list(arrivals), 60 * 51 * (len(arrivals) + 1)
    for _ in range(limit):
        if not pending and not scheduler.has_work:
            break
        if pending and pending[0][0] == 0:
            _, prompt_len, max_tokens, prefix, abort_after = pending.pop(0)
            name = f"r{len(open_requests)}"
            request = make_request(name, [prefix * 1000 + i for i in range(prompt_len)], max_tokens)
            open_requests[name] = (request, abort_after)
            scheduler.add(request)
        elif pending:
            pending[0] = (pending[0][0] - 1, *pending[0][1:])
        oldest = scheduler.running[0] if scheduler.running else None
        step = simulation.step()
        if oldest is not None:
            assert oldest in [item.request for item in step], "the oldest request was not served"
            assert oldest.num_preemptions == 0 or oldest in [item.request for item in step]
        for name, (request, abort_after) in list(open_requests.items()):
            if abort_after == 0 and name not in simulation.finished and name not in aborted:
                scheduler.remove(request)
                aborted.add(name)
                scheduler.check_integrity()
            if abort_after is not None:
                open_requests[name] = (request, abort_after - 1)
    assert not scheduler.has_work
    assert sorted([*simulation.finished, *aborted]) == sorted(open_requests)
    assert scheduler.tables.pool.num_free == num_blocks
