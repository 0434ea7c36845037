"""Which tokens of which requests the next step computes.

Pure bookkeeping over `BlockTables`: no torch, no clock, no Ray, so that tests and a simulator run it as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from engine.request import Request
from kv_cache import BlockTables


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """Tokens [start, start + num_tokens) of a request; its last known token among them means a new one is sampled."""

    request: Request
    start: int
    num_tokens: int

    @property
    def samples(self) -> bool:
        return self.start + self.num_tokens == len(self.request.token_ids)


class Scheduler:
    """Continuous batching: every step is planned anew, decodes first, prompts in chunks within one token budget.

    Requests run in order of arrival. A step's budget is first promised to the decodes, one token each; what is left
    goes to prompts, the oldest first, cut where the budget ends. When a decode finds no block, the youngest running
    request is preempted: it gives its blocks back and waits at the head of the queue to be recomputed. So the oldest
    request never waits for a younger one, and as no request is let in that could not run alone, it always ends.
    """

    def __init__(self, tables: BlockTables, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        if max_num_batched_tokens < max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({max_num_batched_tokens}) must be at least max_num_seqs ({max_num_seqs}): "
                "every running request decodes one token a step"
            )
        self.tables = tables
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.num_preemptions = 0
        self.num_kv_waits = 0
        # Blocks a newcomer leaves free, so that it is not preempted by the next step's decodes.
        self._spare_blocks = max(1, tables.pool.num_blocks // 100)

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """A request that has ended or was aborted, running or waiting: its blocks return at once."""
        if request.table is None:
            self.waiting.remove(request)
        else:
            self.running.remove(request)
            self._close(request)

    def schedule(self) -> list[ScheduledRequest]:
        """The next step's work, oldest request first. Empty only where nothing is running or waiting."""
        decodes = sum(request.num_uncomputed == 1 for request in self.running)
        prefill_budget = self.max_num_batched_tokens - decodes
        step: list[ScheduledRequest] = []
        preemptions_before = self.num_preemptions
        for request in self._running_oldest_first():
            if request.num_uncomputed == 1:
                if self._make_room(request):
                    step.append(self._take(request, 1))
            elif prefill_budget > 0:
                step.append(self._take(request, min(request.num_uncomputed, prefill_budget)))
                prefill_budget -= step[-1].num_tokens
        # Whoever was preempted a moment ago must not come straight back into the blocks that others needed.
        may_admit = self.num_preemptions == preemptions_before
        while may_admit and prefill_budget > 0 and self.waiting and self._admit():
            step.append(self._take(self.running[-1], min(self.running[-1].num_uncomputed, prefill_budget)))
            prefill_budget -= step[-1].num_tokens
        assert step or not self.has_work, "there is work and none of it was scheduled"
        return step

    def check_integrity(self) -> None:
        """Assert that no block and no request is lost or in two places."""
        tables = [request.table for request in self.running]
        assert all(table is not None for table in tables)
        self.tables.check_integrity(table for table in tables if table is not None)
        assert all(request.table is None and request.num_computed == 0 for request in self.waiting)
        everyone = [request.request_id for request in (*self.running, *self.waiting)]
        assert len(set(everyone)) == len(everyone), "a request is queued twice"

    def _running_oldest_first(self) -> Iterator[Request]:
        """Those running when reached: a preemption takes them from the end, which was not reached yet."""
        index = 0
        while index < len(self.running):
            yield self.running[index]
            index += 1

    def _take(self, request: Request, num_tokens: int) -> ScheduledRequest:
        scheduled = ScheduledRequest(request, request.num_computed, num_tokens)
        request.num_computed += num_tokens
        assert request.table is not None
        self.tables.name_full_blocks(request.table, request.token_ids, request.num_computed)
        return scheduled

    def _make_room(self, request: Request) -> bool:
        """A slot for the request's next token, at the cost of the youngest; False if it was the youngest itself."""
        while request.table is not None and not self.tables.grow(request.table, len(request.token_ids)):
            self._preempt(self.running[-1])
        return request.table is not None

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._close(request)
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(request)

    def _close(self, request: Request) -> None:
        assert request.table is not None
        self.tables.close(request.table)
        request.table = None
        request.num_computed = 0

    def _admit(self) -> bool:
        """Let the head of the queue in if all its known tokens fit; nobody overtakes it."""
        if len(self.running) >= self.max_num_seqs:
            return False
        request = self.waiting[0]
        request.table = self.tables.open(
            request.token_ids,
            request.source.cache_salt,
            may_reuse=request.params.prompt_logprobs is None,  # they need every prompt position computed
            spare_blocks=self._spare_blocks if self.running else 0,
        )
        if request.table is None:
            self.num_kv_waits += 1
            return False
        self.waiting.popleft()
        self.running.append(request)
        request.num_computed = request.table.num_cached_tokens
        if request.num_cached_tokens is None:
            request.num_cached_tokens = request.num_computed
        return True
