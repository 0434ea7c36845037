"""The torch operations against formulas written out in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import PagedBatch, apply_rope, paged_attention, rms_norm, silu_mul, store_kv

NUM_KV_HEADS, GROUP, HEAD_DIM, BLOCK = 2, 3, 8, 4


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def naive_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Query by query and head by head, in float64; q [Q, Hq, d], k and v [S, Hkv, d]."""
    q, k, v = q.double(), k.double(), v.double()
    out = torch.empty_like(q)
    for query in range(len(q)):
        seen = len(k) - len(q) + query + 1
        for head in range(q.shape[1]):
            kv_head = head // (q.shape[1] // k.shape[1])
            scores = (k[:seen, kv_head] @ q[query, head]) * scale
            out[query, head] = torch.softmax(scores, 0) @ v[:seen, kv_head]
    return out


def make_batch(query_lens: list[int], context_lens: list[int]) -> PagedBatch:
    """Blocks dealt from a shuffled pool; padding of the table is block 0, which belongs to nobody."""
    counts = [-(-length // BLOCK) for length in context_lens]
    pool = (torch.randperm(sum(counts), generator=torch.Generator().manual_seed(5)) + 1).tolist()
    tables = torch.zeros(len(counts), max(counts), dtype=torch.int64)
    slots, starts = list[int](), [0]
    for request, count in enumerate(counts):
        tables[request, :count] = torch.tensor([pool.pop() for _ in range(count)])
        for position in range(context_lens[request] - query_lens[request], context_lens[request]):
            slots.append(int(tables[request, position // BLOCK]) * BLOCK + position % BLOCK)
        starts.append(starts[-1] + query_lens[request])
    return PagedBatch(tuple(starts), tuple(context_lens), torch.tensor(slots, dtype=torch.int64), tables, BLOCK)


def fill_cache(batch: PagedBatch, keys: list[Tensor]) -> Tensor:
    """A cache holding each request's keys where its table says, and NaN everywhere else."""
    num_blocks = int(batch.block_tables_RN.max()) + 1
    cache = torch.full((num_blocks, BLOCK, NUM_KV_HEADS, HEAD_DIM), torch.nan)
    for request, request_keys in enumerate(keys):
        for position, key in enumerate(request_keys):
            cache[batch.block_tables_RN[request, position // BLOCK], position % BLOCK] = key
    return cache


@pytest.mark.parametrize(
    ("query_lens", "context_lens"),
    [([1], [1]), ([1], [9]), ([7], [7]), ([3], [8]), ([1, 5, 0, 2, 1], [16, 5, 6, 11, 1])],
)
def test_paged_attention_of_each_request_over_its_own_context(query_lens: list[int], context_lens: list[int]) -> None:
    batch = make_batch(query_lens, context_lens)
    keys = [random(length, NUM_KV_HEADS, HEAD_DIM, seed=10 + i) for i, length in enumerate(context_lens)]
    values = [random(length, NUM_KV_HEADS, HEAD_DIM, seed=20 + i) for i, length in enumerate(context_lens)]
    q = random(sum(query_lens), NUM_KV_HEADS * GROUP, HEAD_DIM, seed=1)
    out = paged_attention(q, fill_cache(batch, keys), fill_cache(batch, values), batch, 0.3)
    for request, (start, end) in enumerate(zip(batch.query_starts, batch.query_starts[1:], strict=False)):
        expected = naive_attention(q[start:end], keys[request], values[request], 0.3)
        torch.testing.assert_close(out[start:end].double(), expected, rtol=1e-5, atol=1e-5)


def test_neighbours_do_not_change_the_bits() -> None:
    context_lens, query_lens = [16, 5, 11], [1, 5, 2]
    keys = [random(length, NUM_KV_HEADS, HEAD_DIM, seed=10 + i) for i, length in enumerate(context_lens)]
    q = random(8, NUM_KV_HEADS * GROUP, HEAD_DIM)
    together = make_batch(query_lens, context_lens)
    cache = fill_cache(together, keys)
    out = paged_attention(q, cache, cache, together, 0.3)
    for request in range(3):
        alone = make_batch([query_lens[request]], [context_lens[request]])
        own_cache = fill_cache(alone, [keys[request]])
        rows = slice(together.query_starts[request], together.query_starts[request + 1])
        assert torch.equal(paged_attention(q[rows], own_cache, own_cache, alone, 0.3), out[rows])


def test_store_kv_writes_the_slots_and_nothing_else() -> None:
    k_cache, v_cache = torch.zeros(3, BLOCK, NUM_KV_HEADS, HEAD_DIM), torch.zeros(3, BLOCK, NUM_KV_HEADS, HEAD_DIM)
    k, v = random(2, NUM_KV_HEADS, HEAD_DIM, seed=1), random(2, NUM_KV_HEADS, HEAD_DIM, seed=2)
    store_kv(k, v, k_cache, v_cache, torch.tensor([9, 2]))
    assert torch.equal(k_cache[2, 1], k[0])
    assert torch.equal(v_cache[0, 2], v[1])
    assert int(k_cache.count_nonzero()) == k.numel()


@pytest.mark.parametrize("weight_shape", [(HEAD_DIM,), (4, HEAD_DIM)])
def test_rms_norm(weight_shape: tuple[int, ...]) -> None:
    x, weight = random(3, 4, HEAD_DIM), random(*weight_shape, seed=1)
    expected = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-2).sqrt() * weight.double()
    torch.testing.assert_close(rms_norm(x, weight, 1e-2).double(), expected, rtol=1e-5, atol=1e-6)


def test_apply_rope_turns_each_pair_by_its_angle() -> None:
    x, angles = random(5, 2, HEAD_DIM), random(5, 1, HEAD_DIM // 2, seed=1)
    half = HEAD_DIM // 2
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat((turned.real, turned.imag), -1)
    torch.testing.assert_close(apply_rope(x, angles.cos(), angles.sin()), expected)


def test_silu_mul_gates_the_second_half_with_the_first() -> None:
    gate_up = random(3, 10)
    gate, up = gate_up[:, :5].double(), gate_up[:, 5:].double()
    torch.testing.assert_close(silu_mul(gate_up).double(), gate / (1 + (-gate).exp()) * up, rtol=1e-6, atol=1e-6)
