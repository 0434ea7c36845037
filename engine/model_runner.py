"""Runs one scheduled step on the model.

Shape suffixes: T tokens of the step, R requests of the step, N blocks of the longest table, V vocabulary, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.request import Request
from engine.sampler import gather_logprobs
from engine.scheduler import ScheduledRequest
from kernels.paged import PagedBatch
from kv_cache.tensors import KVTensors
from models import Decoder

# Prompt log probabilities need logits of every position: this many rows of the vocabulary are held at once.
PROMPT_LOGITS_ROWS = 256


class ModelRunner:
    """A model and its KV cache. `run` returns float32 logits [samples, V], one row for each request that samples."""

    def __init__(self, model: Decoder, kv: KVTensors, block_size: int) -> None:
        self.model = model
        self.kv = kv
        self.block_size = block_size

    @torch.inference_mode()
    def run(self, step: Sequence[ScheduledRequest]) -> Tensor:
        token_ids_T, positions_T, batch = self._inputs(step)
        hidden_TD = self.model.forward(token_ids_T, positions_T, self.kv, batch)
        for item, start in zip(step, batch.query_starts, strict=False):
            if item.request.params.prompt_logprobs is not None:
                self._record_prompt_logprobs(item, hidden_TD[start : start + item.num_tokens])
        last = [end - 1 for item, end in zip(step, batch.query_starts[1:], strict=True) if item.samples]
        return self.model.logits(hidden_TD[last])

    def _inputs(self, step: Sequence[ScheduledRequest]) -> tuple[Tensor, Tensor, PagedBatch]:
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        query_starts = [0]
        for item in step:
            span = range(item.start, item.start + item.num_tokens)
            token_ids += item.request.token_ids[span.start : span.stop]
            positions += span
            blocks = _blocks(item.request)
            slots += [blocks[p // self.block_size] * self.block_size + p % self.block_size for p in span]
            query_starts.append(len(token_ids))
        tables = [_blocks(item.request) for item in step]
        longest = max(map(len, tables))
        batch = PagedBatch(
            query_starts=tuple(query_starts),
            context_lens=tuple(item.start + item.num_tokens for item in step),
            slot_mapping_T=self._int_tensor(slots),
            block_tables_RN=self._int_tensor([table + [0] * (longest - len(table)) for table in tables]),
            block_size=self.block_size,
        )
        return self._int_tensor(token_ids), self._int_tensor(positions), batch

    def _record_prompt_logprobs(self, item: ScheduledRequest, hidden_TD: Tensor) -> None:
        """Position p's logits say how likely prompt token p + 1 was. A preempted request keeps those it has."""
        request = item.request
        first = max(item.start, len(request.prompt_logprobs) - 1)
        last = min(item.start + item.num_tokens, request.num_prompt_tokens - 1)
        for begin in range(first, last, PROMPT_LOGITS_ROWS):
            end = min(begin + PROMPT_LOGITS_ROWS, last)
            logits = self.model.logits(hidden_TD[begin - item.start : end - item.start])
            wanted = request.token_ids[begin + 1 : end + 1]
            counts = [request.params.prompt_logprobs or 0] * len(wanted)
            request.prompt_logprobs += gather_logprobs(torch.log_softmax(logits, dim=-1), wanted, counts)

    def _int_tensor(self, values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.kv.keys[0].device)


def _blocks(request: Request) -> list[int]:
    assert request.table is not None
    return request.table.blocks
