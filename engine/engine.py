"""One rank's engine: requests in, tokens out, a step at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.model_runner import ModelRunner
from engine.outputs import TokenDelta
from engine.request import EngineRequest, Request
from engine.sampler import Sampled, sample
from engine.sampling_params import InvalidParameterError
from engine.scheduler import ScheduledRequest, Scheduler
from engine.settings import EngineConfig
from kv_cache import BlockPool, BlockTables
from kv_cache.tensors import allocate_kv, bytes_per_block
from models import Decoder, load_model, resolve_model
from models.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Where an engine stands. Token and block figures are of the KV cache; `num_waste_slots` are slots of held blocks
    that no token fills yet, below one block a running request. Counters run from the start of the engine."""

    num_running: int
    num_waiting: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_waste_slots: int
    num_steps: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_preemptions: int
    num_kv_waits: int
    num_evictions: int
    num_prefix_query_tokens: int
    num_prefix_hit_tokens: int


class Engine:
    """Schedules, runs, samples and appends. Not thread-safe: `EngineLoop` gives it a thread of its own.

    Raises:
        ValueError: a model that cannot be served, or settings that do not fit it or this machine.
    """

    def __init__(self, config: EngineConfig, *, show_progress: bool = False) -> None:
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        path = resolve_model(config.model)
        self.config = config
        self.tokenizer = load_tokenizer(path)
        model = load_model(path, device=config.torch_device, dtype=config.torch_dtype, show_progress=show_progress)
        self.spec = model.spec
        max_model_len = _max_model_len(config, model.spec.max_position_embeddings)
        num_blocks, self._runner = _with_cache(config, model)
        self._tables = BlockTables(BlockPool(num_blocks), config.block_size, config.enable_prefix_caching)
        self.scheduler = Scheduler(
            self._tables, max_num_seqs=config.max_num_seqs, max_num_batched_tokens=config.max_num_batched_tokens
        )
        self.max_request_tokens = min(max_model_len, num_blocks * config.block_size)
        self._requests: dict[str, Request] = {}
        self._num_steps = self._num_prompt_tokens = self._num_output_tokens = 0
        logger.info("KV cache: %d blocks of %d tokens, %s", num_blocks, config.block_size, model.dtype)
        if self.max_request_tokens < max_model_len:
            logger.warning("the KV cache holds %d tokens: longer requests are refused", self.max_request_tokens)

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def check_request(self, source: EngineRequest) -> None:
        """Refuse what could never be served.

        Raises:
            InvalidParameterError: names the field, and what it would have to be.
        """
        length, limit = len(source.prompt_token_ids), self.max_request_tokens
        if length == 0:
            raise InvalidParameterError("prompt", "the prompt is empty: it must have at least one token")
        if length >= limit:
            message = f"the prompt has {length} tokens and prompt and output together may have {limit}"
            raise InvalidParameterError("prompt", message)
        if source.params.max_tokens is not None and length + source.params.max_tokens > limit:
            message = (
                f"max_tokens is {source.params.max_tokens} and the prompt has {length} tokens, "
                f"but together they may have {limit}"
            )
            raise InvalidParameterError("max_tokens", message)
        for name, token_ids in (
            ("prompt", source.prompt_token_ids),
            ("logit_bias", source.params.logit_bias),
            ("stop_token_ids", source.params.stop_token_ids),
        ):
            _check_token_ids(name, tuple(token_ids), self.spec.vocab_size)

    def add_request(self, source: EngineRequest) -> None:
        """Queue a request. Raises InvalidParameterError as `check_request` does."""
        self.check_request(source)
        assert source.request_id not in self._requests, f"request id {source.request_id} is in use"
        params = source.params
        eos = frozenset[int]() if params.ignore_eos else self.tokenizer.eos_token_ids
        length = len(source.prompt_token_ids)
        longest = self.max_request_tokens if params.max_tokens is None else length + params.max_tokens
        request = Request(source, eos | frozenset(params.stop_token_ids), longest)
        self._requests[source.request_id] = request
        self.scheduler.add(request)

    def abort(self, request_id: str) -> TokenDelta | None:
        """End a request now; its blocks return. None if it had ended already."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        self.scheduler.remove(request)
        return TokenDelta(request_id, finish_reason="abort", num_cached_tokens=request.num_cached_tokens or 0)

    def step(self) -> list[TokenDelta]:
        """One iteration: every request that is due gets one token."""
        step = self.scheduler.schedule()
        if not step:
            return []
        logits = self._runner.run(step)
        self._num_steps += 1
        sampling = [item.request for item in step if item.samples]
        with torch.inference_mode():
            sampled = sample(logits, sampling) if sampling else []
        self._count(step, sampled)
        return [self._append(request, token) for request, token in zip(sampling, sampled, strict=True)]

    def check_integrity(self) -> None:
        """Assert that every block and every request is accounted for: free + held = total."""
        self.scheduler.check_integrity()
        assert len(self._requests) == len(self.scheduler.running) + len(self.scheduler.waiting)

    def drop_prefix_cache(self) -> None:
        """Forget cached prefixes; running requests keep their blocks."""
        self._tables.pool.drop_cached()

    def stats(self) -> EngineStats:
        pool, scheduler = self._tables.pool, self.scheduler
        return EngineStats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_blocks=pool.num_blocks,
            num_free_blocks=pool.num_free,
            num_cached_blocks=pool.num_cached,
            num_waste_slots=sum(_waste(request, self._tables.block_size) for request in list(scheduler.running)),
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_output_tokens=self._num_output_tokens,
            num_preemptions=scheduler.num_preemptions,
            num_kv_waits=scheduler.num_kv_waits,
            num_evictions=pool.num_evictions,
            num_prefix_query_tokens=self._tables.num_queried_tokens,
            num_prefix_hit_tokens=self._tables.num_hit_tokens,
        )

    def _append(self, request: Request, sampled: Sampled) -> TokenDelta:
        cached = request.num_cached_tokens or 0
        if sampled.token_id is None:
            self._finish(request)
            message = "the model's logits are not finite"
            return TokenDelta(request.request_id, finish_reason="error", num_cached_tokens=cached, error=message)
        first = request.num_output_tokens == 0
        finish_reason = request.append(sampled.token_id)
        if finish_reason is not None:
            self._finish(request)
        return TokenDelta(
            request.request_id,
            token_ids=(sampled.token_id,),
            logprobs=None if sampled.logprobs is None else (sampled.logprobs,),
            finish_reason=finish_reason,
            stop_token_id=sampled.token_id if finish_reason == "stop" else None,
            num_cached_tokens=cached,
            prompt_logprobs=tuple(request.prompt_logprobs)
            if first and request.params.prompt_logprobs is not None
            else None,
        )

    def _finish(self, request: Request) -> None:
        del self._requests[request.request_id]
        self.scheduler.remove(request)

    def _count(self, step: Sequence[ScheduledRequest], sampled: Sequence[Sampled]) -> None:
        self._num_output_tokens += len(sampled)
        self._num_prompt_tokens += sum(
            max(0, min(item.start + item.num_tokens, item.request.num_prompt_tokens) - item.start) for item in step
        )


def _max_model_len(config: EngineConfig, model_limit: int) -> int:
    if config.max_model_len is None:
        return model_limit
    if config.max_model_len > model_limit:
        raise ValueError(f"max_model_len is {config.max_model_len} but the model was made for {model_limit} tokens")
    return config.max_model_len


def _with_cache(config: EngineConfig, model: Decoder) -> tuple[int, ModelRunner]:
    spec, size, dtype = model.spec, config.block_size, model.dtype
    each = bytes_per_block(spec.num_layers, spec.num_kv_heads, spec.head_dim, size, dtype)
    num_blocks = int(config.kv_cache_gib * 2**30) // each
    if num_blocks < 1:
        raise ValueError(f"kv_cache_gib is {config.kv_cache_gib}, less than one block of {each} bytes")
    kv = allocate_kv(
        num_blocks,
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        block_size=size,
        dtype=dtype,
        device=model.device,
    )
    return num_blocks, ModelRunner(model, kv, size)


def _check_token_ids(name: str, token_ids: Sequence[int], vocab_size: int) -> None:
    bad = next((token_id for token_id in token_ids if not 0 <= token_id < vocab_size), None)
    if bad is not None:
        raise InvalidParameterError(name, f"{name} has token id {bad}; the model's ids are 0 to {vocab_size - 1}")


def _waste(request: Request, block_size: int) -> int:
    held = 0 if request.table is None else len(request.table.blocks) * block_size
    return max(0, held - len(request.token_ids))
