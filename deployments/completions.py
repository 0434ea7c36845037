"""Answers of /v1/completions, whole and in chunks, with echo."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from deployments.generation import ChoiceDelta, Event, FinishedChoice, collect, require_delta
from deployments.job import Job
from deployments.logprobs import CompletionLogprobsBuilder, join, prompt_logprobs
from deployments.openai_api import CompletionRequest
from deployments.prompts import TokenizedPrompt
from deployments.responses import Completion, CompletionChoice, CompletionLogprobs, Usage
from deployments.sampling import is_scoring
from engine import TokenLogprobs
from models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """What is said to a completion request. `prompts` are those of the job's entries, `n` entries each."""

    job: Job
    request: CompletionRequest
    prompts: Sequence[TokenizedPrompt]
    tokenizer: Tokenizer

    async def whole(self, events: AsyncGenerator[Event, None]) -> Completion:
        finished = await collect(events, len(self.job.entries))
        if is_scoring(self.request):
            for entry in self.job.entries:
                entry.token_ids.clear()  # the token that had to be drawn is neither returned nor charged
            finished = [replace(done, text="", logprobs=[], finish_reason="length") for done in finished]
        choices = [self._whole_choice(index, done) for index, done in enumerate(finished)]
        return self._envelope(choices, self.job.usage, has_usage=True)

    async def chunks(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Completion, None]:
        """For each choice: the echoed prompt, if asked for, then text; the last chunk of each has the finish reason.

        Raises:
            ApiError: the request was refused on the way.
        """
        logprobs = {index: self._logprobs_builder() for index in range(len(self.job.entries))}
        begun: set[int] = set()
        async with aclosing(events):
            async for event in events:
                delta = require_delta(event)
                if self.request.echo and delta.index not in begun:
                    yield self._chunk(self._echo_choice(delta, logprobs[delta.index]))
                begun.add(delta.index)
                if is_scoring(self.request):
                    self.job.entries[delta.index].token_ids.clear()
                    yield self._chunk(_end_of_scoring(delta.index))
                elif delta.text.text or delta.text.logprobs or delta.text.finish_reason:
                    yield self._chunk(self._text_choice(delta, logprobs[delta.index]))
        if self.job.usage_chunk:
            yield self._envelope([], self.job.usage, has_usage=True)

    def _whole_choice(self, index: int, done: FinishedChoice) -> CompletionChoice:
        prompt = self._prompt(index)
        choice: CompletionChoice = {
            "index": index,
            "text": prompt.text + done.text if self.request.echo else done.text,
            "logprobs": self._whole_logprobs(prompt, done),
            "finish_reason": done.finish_reason,
            "stop_reason": done.stop_reason,
        }
        if self.request.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(self.tokenizer, done.prompt_logprobs)
        return choice

    def _whole_logprobs(self, prompt: TokenizedPrompt, done: FinishedChoice) -> CompletionLogprobs | None:
        builder = self._logprobs_builder()
        if builder is None:
            return None
        echoed = [builder.add_prompt(prompt.token_ids, done.prompt_logprobs)] if self.request.echo else []
        return join([*echoed, builder.add(done.logprobs)])

    def _echo_choice(self, delta: ChoiceDelta, builder: CompletionLogprobsBuilder | None) -> CompletionChoice:
        prompt = self._prompt(delta.index)
        echoed: Sequence[TokenLogprobs | None] = delta.tokens.prompt_logprobs or ()
        logprobs = None if builder is None else builder.add_prompt(prompt.token_ids, echoed)
        return {"index": delta.index, "text": prompt.text, "logprobs": logprobs, "finish_reason": None}

    def _text_choice(self, delta: ChoiceDelta, builder: CompletionLogprobsBuilder | None) -> CompletionChoice:
        choice: CompletionChoice = {
            "index": delta.index,
            "text": delta.text.text,
            "logprobs": None if builder is None else builder.add(delta.text.logprobs or ()),
            "finish_reason": delta.text.finish_reason,
        }
        if delta.text.finish_reason is not None:
            choice["stop_reason"] = delta.text.stop_reason
        return choice

    def _prompt(self, index: int) -> TokenizedPrompt:
        return self.prompts[index // self.request.n]

    def _logprobs_builder(self) -> CompletionLogprobsBuilder | None:
        if self.request.logprobs is None:
            return None
        skip = self.request.skip_special_tokens
        return CompletionLogprobsBuilder(self.tokenizer, self.request.logprobs, skip_special_tokens=skip)

    def _chunk(self, choice: CompletionChoice) -> Completion:
        return self._envelope([choice], self.job.usage_now(), has_usage=self.job.wants_usage)

    def _envelope(self, choices: list[CompletionChoice], usage: Usage | None, *, has_usage: bool) -> Completion:
        answer: Completion = {
            "id": self.job.id,
            "object": "text_completion",
            "created": self.job.created,
            "model": self.job.model,
            "choices": choices,
        }
        if has_usage:
            answer["usage"] = usage
        return answer


def _end_of_scoring(index: int) -> CompletionChoice:
    return {"index": index, "text": "", "logprobs": None, "finish_reason": "length", "stop_reason": None}
