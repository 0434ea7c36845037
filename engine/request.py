"""One request: what was asked (`EngineRequest`), and where it stands (`Request`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.outputs import FinishReason, TokenLogprobs
from engine.sampling_params import SamplingParams
from kv_cache import BlockTable


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt for one completion: `params.n` is 1 and its seed is set.

    Requests share cached prefixes only with requests of the same `cache_salt`.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    cache_salt: str | None = None

    def __post_init__(self) -> None:
        assert self.params.n == 1, "the caller splits n choices into n requests"
        assert self.params.seed is not None, "the caller draws the seed, so that it can repeat the request"


@dataclass(slots=True, eq=False)
class Request:
    """A request inside the engine. `token_ids` is the prompt and all output so far.

    `stop_ids` end it (eos unless ignored, and the request's own); `max_tokens_total` bounds prompt and output together.
    """

    source: EngineRequest
    stop_ids: frozenset[int]
    max_tokens_total: int
    token_ids: list[int] = field(init=False)
    num_computed: int = 0
    table: BlockTable | None = None
    num_cached_tokens: int | None = None  # of the first admission: what the user was spared
    num_preemptions: int = 0
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=lambda: [None])

    def __post_init__(self) -> None:
        self.token_ids = list(self.source.prompt_token_ids)

    @property
    def request_id(self) -> str:
        return self.source.request_id

    @property
    def params(self) -> SamplingParams:
        return self.source.params

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.source.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed(self) -> int:
        """Known tokens without keys and values: 1 while decoding, more while a prompt is filled in."""
        return len(self.token_ids) - self.num_computed

    @property
    def seed(self) -> int:
        assert self.params.seed is not None
        return self.params.seed

    @property
    def must_not_stop(self) -> bool:
        return self.num_output_tokens < self.params.min_tokens

    def append(self, token_id: int) -> FinishReason | None:
        """Take the sampled token; says why the request ends with it, if it does."""
        self.token_ids.append(token_id)
        if token_id in self.stop_ids:
            return "stop"
        return "length" if len(self.token_ids) >= self.max_tokens_total else None
