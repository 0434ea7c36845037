"""From token ids to text that is safe to send: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from engine.outputs import FinishReason, TokenDelta, TokenLogprobs
from engine.sampling_params import SamplingParams
from models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one TokenDelta adds for the reader. Text may lag behind the tokens while it could be part of a stop string.

    `finish_reason` "stop" by a stop string comes while the engine still runs the request: the caller aborts it.
    `stop_reason` is the stop string or stop token that ended it; None for eos and for other ends.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None


class TextStream:
    """The text of one request, delta by delta. After a finish_reason nothing more may be pushed."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._tokenizer = tokenizer
        self._params = params
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""  # decoded, but it may be the beginning of a stop string
        self._num_tokens = 0

    def push(self, delta: TokenDelta) -> TextDelta:
        text = ""
        for index, token_id in enumerate(delta.token_ids):
            self._num_tokens += 1
            is_stop_token = delta.stop_token_id is not None and index == len(delta.token_ids) - 1
            if not is_stop_token or self._params.include_stop_str_in_output:
                self._held += self._decode(token_id)
            found = self._find_stop()
            if found is not None:
                return self._stopped(delta, index + 1, text, found)
            text += self._release()
        if delta.finish_reason is not None:
            self._held += self._utf8.decode(b"", final=True)
            found = self._find_stop()
            if found is not None:
                return self._stopped(delta, len(delta.token_ids), text, found)
            text, self._held = text + self._held, ""
        return TextDelta(text, delta.token_ids, delta.logprobs, delta.finish_reason, self._stop_token(delta))

    def _decode(self, token_id: int) -> str:
        if self._params.skip_special_tokens and token_id in self._tokenizer.special_token_ids:
            return ""
        return self._utf8.decode(self._tokenizer.token_bytes(token_id))

    def _find_stop(self) -> str | None:
        """The stop string that begins first in the held text; none counts before min_tokens."""
        if self._num_tokens <= self._params.min_tokens:
            return None
        found = [(self._held.find(stop), stop) for stop in self._params.stop if stop in self._held]
        return min(found)[1] if found else None

    def _stopped(self, delta: TokenDelta, num_kept: int, text: str, stop: str) -> TextDelta:
        """The last delta: the held text up to the stop string, and the tokens up to the one that completed it."""
        end = self._held.find(stop) + (len(stop) if self._params.include_stop_str_in_output else 0)
        logprobs = None if delta.logprobs is None else delta.logprobs[:num_kept]
        return TextDelta(text + self._held[:end], delta.token_ids[:num_kept], logprobs, "stop", stop)

    def _release(self) -> str:
        """Everything but the longest tail that could still become a stop string."""
        keep = 0
        if self._num_tokens >= self._params.min_tokens:
            keep = max((_overlap(self._held, stop) for stop in self._params.stop), default=0)
        end = len(self._held) - keep
        text, self._held = self._held[:end], self._held[end:]
        return text

    def _stop_token(self, delta: TokenDelta) -> int | None:
        stop_id = delta.stop_token_id
        return stop_id if stop_id is not None and stop_id in self._params.stop_token_ids else None


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-n:])), 0)
