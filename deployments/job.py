"""One HTTP request that generates: what all its chunks share, and the ledger entries of its choices."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from deployments.ledger import LedgerEntry, usage_of
from deployments.openai_api import GenerationRequest
from deployments.responses import Usage
from engine import EngineRequest, SamplingParams


@dataclass(frozen=True, slots=True)
class Job:
    """`entries[i]` is choice i of the answer: all choices of the first prompt, then those of the second, ...

    `usage_chunk` and `usage_everywhere` are what `stream_options` asked for.
    """

    id: str
    created: int
    model: str
    entries: tuple[LedgerEntry, ...]
    usage_chunk: bool
    usage_everywhere: bool

    @property
    def usage(self) -> Usage:
        """Of what has been generated so far."""
        return usage_of(self.entries)

    @property
    def wants_usage(self) -> bool:
        return self.usage_chunk or self.usage_everywhere

    def usage_now(self) -> Usage | None:
        """What a chunk on the way carries in `usage`."""
        return self.usage if self.usage_everywhere else None


def open_job(kind: str, request: GenerationRequest, prompts: Sequence[tuple[int, ...]], params: SamplingParams) -> Job:
    """Split the request into one ledger entry a choice. `kind` begins the id, as in `chatcmpl-...`.

    The engine's ids are our own: a client may send the same x-request-id twice.
    """
    job_id = f"{kind}-{uuid.uuid4().hex}"
    entries = [
        LedgerEntry(
            EngineRequest(
                request_id=f"{job_id}-{row}-{choice}",
                prompt_token_ids=prompt,
                params=params.for_choice(choice),
                cache_salt=request.cache_salt,
            ),
            choice,
        )
        for row, prompt in enumerate(prompts)
        for choice in range(params.n)
    ]
    options = request.stream_options
    return Job(
        id=job_id,
        created=int(time.time()),
        model=request.model,
        entries=tuple(entries),
        usage_chunk=options is not None and options.include_usage,
        usage_everywhere=options is not None and options.continuous_usage_stats,
    )
