"""Requests that must be refused: what is sent, and what must come back."""

from __future__ import annotations

import json
from dataclasses import dataclass

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hi"}


@dataclass(frozen=True)
class BadRequest:
    """`param` and `code` are those of the error; None stands for null."""

    name: str
    path: str
    body: bytes
    status: int
    param: str | None
    code: str | None
    content_type: str = "application/json"


def _completion(name: str, param: str | None, code: str = "invalid_value", **fields: object) -> BadRequest:
    body = {"model": "demo", "prompt": "hi", "max_tokens": 2, **fields}
    return BadRequest(f"completion: {name}", COMPLETIONS, json.dumps(body).encode(), 400, param, code)


def _chat(name: str, param: str | None, code: str = "invalid_value", **fields: object) -> BadRequest:
    body = {"model": "demo", "messages": [USER], "max_tokens": 2, **fields}
    return BadRequest(f"chat: {name}", CHAT, json.dumps(body).encode(), 400, param, code)


def _raw(name: str, body: bytes, status: int, **expected: str | None) -> BadRequest:
    return BadRequest(
        f"raw: {name}",
        COMPLETIONS,
        body,
        status,
        expected.get("param"),
        expected.get("code"),
        expected.get("content_type") or "application/json",
    )


BAD_REQUESTS = [
    _completion("empty prompt", "prompt", prompt=""),
    _completion("no prompts", "prompt", prompt=[]),
    _completion("an empty prompt among others", "prompt", prompt=["a", ""]),
    _completion("no token ids", "prompt", prompt=[[]]),
    _completion("unknown token id", "prompt", prompt=[10**9]),
    _completion("negative token id", "prompt", prompt=[-1]),
    _completion("mixed prompt", "prompt[1]", prompt=[1, "a"]),
    _completion("prompt of no kind", "prompt", "invalid_value", prompt={"a": 1}),
    _completion("100k-token prompt", "prompt", prompt="word " * 100_000),
    _completion("max_tokens 0", "max_tokens", max_tokens=0),
    _completion("max_tokens huge", "max_tokens", max_tokens=10**12),
    _completion("max_tokens a string", "max_tokens", max_tokens="5"),
    _completion("min_tokens above max_tokens", "min_tokens", min_tokens=3),
    _completion("negative temperature", "temperature", temperature=-0.1),
    _completion("temperature a bool", "temperature", temperature=True),
    _completion("top_p 0", "top_p", top_p=0),
    _completion("top_k below -1", "top_k", top_k=-2),
    _completion("five stop strings", "stop", stop=["a", "b", "c", "d", "e"]),
    _completion("empty stop string", "stop", stop=["a", ""]),
    _completion("unknown id in logit_bias", "logit_bias", logit_bias={"999999": 1}),
    _completion("no id in logit_bias", "logit_bias", logit_bias={"x": 1}),
    _completion("logit_bias out of range", "logit_bias", logit_bias={"1": 101}),
    _completion("unknown stop token id", "stop_token_ids", stop_token_ids=[10**9]),
    _completion("n 0", "n", n=0),
    _completion("n 1000", "n", n=1000),
    _completion("too many choices", "prompt", prompt=["a"] * 70, n=2),
    _completion("seed too large", "seed", seed=2**64),
    _completion("logprobs 21", "logprobs", logprobs=21),
    _completion("best_of", "best_of", best_of=2),
    _completion("suffix", "suffix", "unsupported_parameter", suffix="x"),
    _completion("misspelt field", "temperture", "unknown_parameter", temperture=1),
    _completion("stream_options without stream", "stream_options", stream_options={"include_usage": True}),
    _completion("prompt_logprobs in a stream", "prompt_logprobs", stream=True, prompt_logprobs=1),
    _chat("no messages", "messages", messages=[]),
    _chat("messages a string", "messages", messages="hi"),
    _chat("no content", "messages[1].content", messages=[USER, {"role": "user"}]),
    _chat("no role", "messages[0].role", "missing_required_parameter", messages=[{"content": "hi"}]),
    _chat("unknown role", "messages[0].role", messages=[{"role": "alien", "content": "hi"}]),
    _chat("an image", "messages[0].content[0].type", messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
    _chat("content a number", "messages[0].content", messages=[{"role": "user", "content": 5}]),
    _chat("tool calls", "messages[0].tool_calls", messages=[{"role": "assistant", "tool_calls": [{}]}]),
    _chat("tools", "tools", "unsupported_parameter", tools=[{"type": "function"}]),
    _chat("json mode", "response_format", "unsupported_parameter", response_format={"type": "json_object"}),
    _chat("top_logprobs alone", "top_logprobs", top_logprobs=2),
    _chat("top_logprobs 21", "top_logprobs", logprobs=True, top_logprobs=21),
    _chat("max_completion_tokens 0", "max_completion_tokens", max_completion_tokens=0),
    _chat("max_completion_tokens huge", "max_completion_tokens", max_completion_tokens=10**12),
    _chat("a long chat", "messages", messages=[{"role": "user", "content": "word " * 100_000}]),
    _chat("a long chat, streamed", "messages", messages=[{"role": "user", "content": "word " * 100_000}], stream=True),
    _raw("no model", b'{"prompt": "hi"}', 400, param="model", code="missing_required_parameter"),
    _raw("unknown model", b'{"model": "gpt-9", "prompt": "hi"}', 404, param="model", code="model_not_found"),
    _raw("no JSON", b"{", 400),
    _raw("no body", b"", 400),
    _raw("an array", b"[]", 400),
    _raw("NaN", b'{"model": "demo", "prompt": "hi", "temperature": NaN}', 400),
    _raw("Infinity", b'{"model": "demo", "prompt": "hi", "top_p": 1e999}', 400, param="top_p", code="invalid_value"),
    _raw("invalid UTF-8", b'{"model": "demo", "prompt": "\xff"}', 400),
    _raw("half a surrogate pair", b'{"model": "demo", "prompt": "\\ud800"}', 400),
    _raw("deep nesting", b"[" * 100_000, 400),
    _raw("a number of 5000 digits", b'{"model": "demo", "prompt": "hi", "seed": ' + b"1" * 5000 + b"}", 400),
    _raw("plain text", b'{"model": "demo"}', 415, code="unsupported_media_type", content_type="text/plain"),
    _raw("10 MB", b'{"prompt": "' + b"x" * 10**7 + b'"}', 413, code="request_too_large"),
]
