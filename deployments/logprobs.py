"""Log probabilities in the API's shapes."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence

from deployments.responses import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)
from engine import TokenLogprobs
from models.tokenizer import Tokenizer

# JSON has no -Infinity; this is what OpenAI's API says for a token that cannot be.
_IMPOSSIBLE = -9999.0


def chat_logprobs(tokenizer: Tokenizer, logprobs: Iterable[TokenLogprobs]) -> ChatLogprobs:
    return {"content": [_chat_token(tokenizer, token) for token in logprobs], "refusal": None}


def _chat_token(tokenizer: Tokenizer, token: TokenLogprobs) -> TokenLogprob:
    likeliest = [_top(tokenizer, token_id, logprob) for token_id, logprob in token.top]
    return {**_top(tokenizer, token.token_id, token.logprob), "top_logprobs": likeliest}


def _top(tokenizer: Tokenizer, token_id: int, logprob: float) -> TopLogprob:
    return {
        "token": tokenizer.token_text(token_id),
        "logprob": _finite(logprob),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


def prompt_logprobs(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprobs | None]) -> PromptLogprobs:
    return [None if token is None else _by_id(tokenizer, token) for token in logprobs]


def _by_id(tokenizer: Tokenizer, token: TokenLogprobs) -> dict[str, PromptLogprob]:
    pairs = [(token.token_id, token.logprob), *token.top]
    return {
        str(token_id): {"logprob": _finite(logprob), "decoded_token": tokenizer.token_text(token_id)}
        for token_id, logprob in pairs
    }


class CompletionLogprobsBuilder:
    """The `logprobs` of one completion choice, piece by piece.

    `text_offset` is where a token begins in the choice's text, counted in characters. A token that carries only part of
    a character begins where that character does, and a special token that the text leaves out takes no room.
    """

    def __init__(self, tokenizer: Tokenizer, num_top: int, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._skip_special_tokens = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def add_prompt(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]) -> CompletionLogprobs:
        return self._add(list(zip(token_ids, logprobs, strict=True)), skip_special_tokens=False)

    def add(self, logprobs: Sequence[TokenLogprobs]) -> CompletionLogprobs:
        tokens = [(token.token_id, token) for token in logprobs]
        return self._add(tokens, skip_special_tokens=self._skip_special_tokens)

    def _add(
        self, tokens: Sequence[tuple[int, TokenLogprobs | None]], *, skip_special_tokens: bool
    ) -> CompletionLogprobs:
        offsets = []
        for token_id, _ in tokens:
            offsets.append(self._offset)
            if not (skip_special_tokens and token_id in self._tokenizer.special_token_ids):
                self._offset += len(self._utf8.decode(self._tokenizer.token_bytes(token_id)))
        return {
            "tokens": [self._tokenizer.token_text(token_id) for token_id, _ in tokens],
            "token_logprobs": [None if entry is None else _finite(entry.logprob) for _, entry in tokens],
            "top_logprobs": [self._top(entry) for _, entry in tokens],
            "text_offset": offsets,
        }

    def _top(self, entry: TokenLogprobs | None) -> dict[str, float] | None:
        """By the token's text. The token that stands there is always among them, as in OpenAI's API."""
        if entry is None:
            return None
        pairs = [*entry.top[: self._num_top], (entry.token_id, entry.logprob)]
        # Of two tokens that look the same, the likelier one is kept.
        return {
            self._tokenizer.token_text(token_id): _finite(logprob)
            for token_id, logprob in sorted(pairs, key=lambda p: p[1])
        }


def join(parts: Sequence[CompletionLogprobs]) -> CompletionLogprobs:
    """One after the other."""
    return {
        "tokens": [token for part in parts for token in part["tokens"]],
        "token_logprobs": [logprob for part in parts for logprob in part["token_logprobs"]],
        "top_logprobs": [top for part in parts for top in part["top_logprobs"]],
        "text_offset": [offset for part in parts for offset in part["text_offset"]],
    }


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _IMPOSSIBLE
