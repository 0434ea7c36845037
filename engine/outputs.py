"""What the engine hands back: token by token while a request runs, and whole for offline use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probability (natural log, of the model's own distribution) of one token and of the likeliest at its place."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """What one step added to one request.

    `token_ids` are new output tokens, a stop or eos token among them; `logprobs` has one entry for each when asked for.
    `finish_reason` is set in the last delta. `stop_token_id` is the eos or stop token that ended it, if one did.
    `prompt_logprobs` comes once, with the first token: one entry a prompt token, None for the first.
    `error` says what went wrong when `finish_reason` is "error".
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    num_cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished completion of a prompt."""

    index: int
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...] | None
    finish_reason: FinishReason
    stop_reason: int | str | None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """All that came of one prompt; the attributes of its first choice can be read directly."""

    prompt_token_ids: tuple[int, ...]
    num_cached_tokens: int
    choices: tuple[Choice, ...]
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.choices[0].token_ids

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        return self.choices[0].logprobs

    @property
    def finish_reason(self) -> FinishReason:
        return self.choices[0].finish_reason
