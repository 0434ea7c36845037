"""What a request asks of the sampler, checked once where it enters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

MIN_TEMPERATURE = 1e-5
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 4
MAX_CHOICES = 128


class InvalidParameterError(ValueError):
    """A user's value that cannot be served; `param` is the field's name in the API."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param
        self.message = message

    def __reduce__(self) -> tuple[type[InvalidParameterError], tuple[str, str]]:
        return type(self), (self.param, self.message)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen and when a request ends.

    Fields mean what they mean in OpenAI's API and vLLM. `max_tokens=None` runs to the model's limit. `seed=None` draws
    one when the request enters the engine. `logprobs=n` returns the sampled token's log probability and the n likeliest
    (0: the sampled token alone); `prompt_logprobs` does the same for the prompt. Both are of the model's own
    distribution, before penalties and temperature. `top_k=0` is off.

    Raises:
        InvalidParameterError: a value out of range; names the field.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        for name in ("stop", "stop_token_ids"):  # offline users write lists, or one string
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        _require_range("max_tokens", self.max_tokens, low=1)
        _require_range("min_tokens", self.min_tokens, low=0, high=self.max_tokens)
        _require_range("temperature", self.temperature, low=0.0)
        _require_range("top_p", self.top_p, low=0.0, high=1.0, low_open=True)
        _require_range("top_k", self.top_k, low=0)
        _require_range("min_p", self.min_p, low=0.0, high=1.0)
        _require_range("presence_penalty", self.presence_penalty, low=-2.0, high=2.0)
        _require_range("frequency_penalty", self.frequency_penalty, low=-2.0, high=2.0)
        _require_range("repetition_penalty", self.repetition_penalty, low=0.0, low_open=True)
        _require_range("seed", self.seed, low=-(2**63), high=2**63 - 1)
        _require_range("n", self.n, low=1, high=MAX_CHOICES)
        _require_range("logprobs", self.logprobs, low=0, high=MAX_LOGPROBS)
        _require_range("prompt_logprobs", self.prompt_logprobs, low=0, high=MAX_LOGPROBS)
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidParameterError("stop", f"stop takes at most {MAX_STOP_STRINGS} strings, got {len(self.stop)}")
        if any(not text for text in self.stop):
            raise InvalidParameterError("stop", "stop strings must not be empty")
        for token_id, bias in self.logit_bias.items():
            _require_range(f"logit_bias[{token_id}]", bias, low=-100.0, high=100.0, param="logit_bias")

    @property
    def is_greedy(self) -> bool:
        """Temperatures too small to divide by mean greedy too."""
        return self.temperature < MIN_TEMPERATURE

    def for_choice(self, index: int) -> SamplingParams:
        """The parameters of choice `index` of `n`: its own seed, so that choices differ and each can be repeated alone.

        Choice 0 keeps the seed, so n=1 is choice 0 of n=2.
        """
        if self.seed is None:
            raise AssertionError("the seed is drawn before a request is split into choices")
        if index == 0:
            return replace(self, n=1)
        digest = blake2b(f"{self.seed}/{index}".encode(), digest_size=8).digest()
        return replace(self, n=1, seed=int.from_bytes(digest, "little", signed=True))


def _require_range(
    name: str,
    value: object,
    *,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    param: str | None = None,
) -> None:
    if value is None:
        return
    param = param or name
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidParameterError(param, f"{name} must be a finite number, got {value!r}")
    if low is not None and (value < low or (low_open and value == low)):
        raise InvalidParameterError(param, f"{name} must be {'>' if low_open else '>='} {low}, got {value}")
    if high is not None and value > high:
        raise InvalidParameterError(param, f"{name} must be <= {high}, got {value}")
