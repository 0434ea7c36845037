"""The book kept of each request: all that would be needed to go on with it elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from deployments.responses import Usage
from engine import EngineRequest, TextDelta, TokenDelta


@dataclass(slots=True)
class LedgerEntry:
    """One choice of one prompt: what was asked (with its seed), and the output ids the client has been given."""

    request: EngineRequest
    choice: int
    token_ids: list[int] = field(default_factory=list)
    num_cached_tokens: int = 0

    def record(self, delta: TokenDelta, kept: TextDelta) -> None:
        """`kept` is `delta` after stop strings."""
        self.token_ids.extend(kept.token_ids)
        self.num_cached_tokens = max(self.num_cached_tokens, delta.num_cached_tokens)


def usage_of(entries: Iterable[LedgerEntry]) -> Usage:
    """What all entries of an HTTP request cost. A prompt counts once, however many choices were drawn for it."""
    prompt_tokens = completion_tokens = cached_tokens = 0
    for entry in entries:
        completion_tokens += len(entry.token_ids)
        if entry.choice == 0:
            prompt_tokens += len(entry.request.prompt_token_ids)
            cached_tokens += entry.num_cached_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
