"""The engine without a server, for batch work, benchmarks and tests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Unpack

from engine.engine import Engine
from engine.outputs import Choice, FinishReason, RequestOutput, TokenDelta, TokenLogprobs
from engine.request import EngineRequest
from engine.sampling_params import InvalidParameterError, SamplingParams
from engine.settings import EngineConfig, EngineOptions
from engine.text_stream import TextStream
from models.tokenizer import Tokenizer

Chat = Sequence[Mapping[str, object]]
Prompt = str | Sequence[int] | Chat


class LLM:
    """A model that answers whole batches.

    `model` is a checkpoint directory or "demo"; the other settings are those of `EngineConfig`.

        llm = LLM("demo")
        llm.generate(["Once upon a time"], SamplingParams(max_tokens=16))[0].text
    """

    def __init__(self, model: str = "demo", **options: Unpack[EngineOptions]) -> None:
        self.engine = Engine(EngineConfig(model=model, **options), show_progress=True)
        self._num_requests = 0

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str | None = None,
    ) -> list[RequestOutput]:
        """Answer all prompts (strings, lists of token ids, or chats), in their order.

        Raises:
            InvalidParameterError: a prompt or parameter cannot be served; none of the prompts is then run.
        """
        token_lists = [self._encode(prompt) for prompt in _as_list(prompts)]
        each = _params_for_each(params or SamplingParams(), len(token_lists))
        answers = [
            self._split(tuple(token_ids), one, cache_salt) for token_ids, one in zip(token_lists, each, strict=True)
        ]
        by_id = {answer.request.request_id: answer for choices in answers for answer in choices}
        for answer in by_id.values():
            self.engine.check_request(answer.request)
        self._run(by_id)
        return [_output(choices) for choices in answers]

    def _run(self, by_id: dict[str, _Answer]) -> None:
        try:
            for answer in by_id.values():
                self.engine.add_request(answer.request)
            while self.engine.has_work:
                for delta in self.engine.step():
                    if by_id[delta.request_id].take(delta):
                        self.engine.abort(delta.request_id)
        finally:  # an interrupt leaves the engine as it was
            for request_id in by_id:
                self.engine.abort(request_id)
        self.engine.check_integrity()

    def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if prompt and isinstance(prompt[0], Mapping):
            return self.tokenizer.encode_chat([dict(message) for message in prompt if isinstance(message, Mapping)])
        return [token_id for token_id in prompt if isinstance(token_id, int)]

    def _split(self, token_ids: tuple[int, ...], params: SamplingParams, salt: str | None) -> list[_Answer]:
        if params.seed is None:
            params = replace(params, seed=secrets.randbits(63))
        answers = []
        for index in range(params.n):
            self._num_requests += 1
            request = EngineRequest(f"offline-{self._num_requests}", token_ids, params.for_choice(index), salt)
            answers.append(_Answer(request, TextStream(self.tokenizer, params)))
        return answers


@dataclass(slots=True)
class _Answer:
    """One choice while it grows."""

    request: EngineRequest
    stream: TextStream
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None

    def take(self, delta: TokenDelta) -> bool:
        """Add a delta; True if the choice ended by a stop string, which the engine does not know of."""
        if delta.finish_reason == "error":
            raise RuntimeError(f"request {delta.request_id}: {delta.error}")
        added = self.stream.push(delta)
        self.text += added.text
        self.token_ids += added.token_ids
        self.logprobs += added.logprobs or ()
        self.finish_reason, self.stop_reason = added.finish_reason, added.stop_reason
        self.num_cached_tokens = delta.num_cached_tokens
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        return added.finish_reason is not None and delta.finish_reason is None

    def choice(self, index: int) -> Choice:
        assert self.finish_reason is not None
        logprobs = None if self.request.params.logprobs is None else tuple(self.logprobs)
        return Choice(index, tuple(self.token_ids), self.text, logprobs, self.finish_reason, self.stop_reason)


def _output(answers: list[_Answer]) -> RequestOutput:
    first = answers[0]
    return RequestOutput(
        prompt_token_ids=first.request.prompt_token_ids,
        num_cached_tokens=first.num_cached_tokens,
        choices=tuple(answer.choice(index) for index, answer in enumerate(answers)),
        prompt_logprobs=first.prompt_logprobs,
    )


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt, or many: a string, a list of ids and a list of messages are one each."""
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int | Mapping)):
        return [prompts]  # type: ignore[list-item]  # narrowed by its first element
    return list(prompts)  # type: ignore[arg-type]


def _params_for_each(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise InvalidParameterError("params", f"{len(params)} sampling parameters for {count} prompts")
    return list(params)
