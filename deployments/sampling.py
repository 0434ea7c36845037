"""From the fields of a request to `SamplingParams`, with every default resolved."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from deployments.openai_api import ChatCompletionRequest, CompletionRequest, GenerationRequest
from engine import InvalidParameterError, SamplingParams
from engine.sampling_params import MAX_LOGPROBS


def chat_params(request: ChatCompletionRequest) -> SamplingParams:
    """Raises InvalidParameterError, as do all here."""
    name, max_tokens = "max_tokens", request.max_tokens
    if request.max_completion_tokens is not None:
        name, max_tokens = "max_completion_tokens", request.max_completion_tokens
    _require_positive(name, max_tokens)
    _reject_streamed_prompt_logprobs(request)
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    _require_range_of_logprobs("top_logprobs", logprobs)
    return _params(request, max_tokens, logprobs, request.prompt_logprobs)


def completion_params(request: CompletionRequest) -> SamplingParams:
    """An echo that asks for no token draws one, because the engine draws at least one; `is_scoring` says to drop it."""
    if not is_scoring(request):
        _require_positive("max_tokens", request.max_tokens)
    _reject_streamed_prompt_logprobs(request)
    _require_range_of_logprobs("logprobs", request.logprobs)
    prompt_logprobs = request.prompt_logprobs
    if request.echo and request.logprobs is not None:
        prompt_logprobs = max(request.logprobs, prompt_logprobs or 0)
    return _params(request, request.max_tokens or 1, request.logprobs, prompt_logprobs)


def is_scoring(request: CompletionRequest) -> bool:
    """Whether only the prompt is wanted back, with its log probabilities."""
    return request.echo and request.max_tokens == 0


def _params(
    request: GenerationRequest, max_tokens: int | None, logprobs: int | None, prompt_logprobs: int | None
) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=request.min_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=max(request.top_k, 0),  # -1 is vLLM's way to say "off"
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=_logit_bias(request.logit_bias),
        seed=secrets.randbits(63) if request.seed is None else request.seed,
        n=request.n,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop),
        stop_token_ids=tuple(request.stop_token_ids),
        include_stop_str_in_output=request.include_stop_str_in_output,
        ignore_eos=request.ignore_eos,
        skip_special_tokens=request.skip_special_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def _logit_bias(by_text: Mapping[str, float]) -> dict[int, float]:
    """JSON has only strings for keys."""
    bad = next((key for key in by_text if not (key.isascii() and key.isdecimal() and len(key) < 10)), None)
    if bad is not None:
        raise InvalidParameterError("logit_bias", f"logit_bias takes token ids as keys, got {bad[:40]!r}")
    return {int(key): bias for key, bias in by_text.items()}


def _require_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InvalidParameterError(name, f"{name} must be >= 1, got {value}")


def _require_range_of_logprobs(name: str, value: int | None) -> None:
    """SamplingParams checks it too, but would call chat's `top_logprobs` by the wrong name."""
    if value is not None and not 0 <= value <= MAX_LOGPROBS:
        raise InvalidParameterError(name, f"{name} must be between 0 and {MAX_LOGPROBS}, got {value}")


def _reject_streamed_prompt_logprobs(request: GenerationRequest) -> None:
    if request.stream and request.prompt_logprobs is not None:
        raise InvalidParameterError("prompt_logprobs", "prompt_logprobs is not available when stream is true")
