"""Block tables of requests over one pool: prefix reuse on opening, growth, names for full blocks, release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kv_cache.block_pool import BlockPool
from kv_cache.prefix_hash import chain_hash, root_hash


@dataclass(slots=True)
class BlockTable:
    """The blocks of one request in token order; the first `num_cached_tokens` tokens were already computed."""

    blocks: list[int]
    num_cached_tokens: int
    last_hash: bytes
    num_named: int = 0  # leading blocks whose hash is known: their chain ends in last_hash


@dataclass(slots=True)
class BlockTables:
    """Opens, grows and closes block tables.

    `open` reserves the whole prompt at once, so a prompt that was let in can always be finished; only decoding grows
    a table, a block at a time, and so a table wastes less than one block.
    """

    pool: BlockPool
    block_size: int
    prefix_caching: bool = True
    num_queried_tokens: int = field(default=0, init=False)
    num_hit_tokens: int = field(default=0, init=False)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def open(
        self, token_ids: Sequence[int], salt: str | None, *, may_reuse: bool = True, spare_blocks: int = 0
    ) -> BlockTable | None:
        """A table for all of `token_ids`, or None where the pool cannot hold it and keep `spare_blocks` free.

        At least the last token is left to compute, because its logits are wanted. `may_reuse=False` computes all.
        """
        reused, last_hash = self._match(token_ids, salt) if may_reuse and self.prefix_caching else ([], root_hash(salt))
        fresh = self.blocks_for(len(token_ids)) - len(reused)
        available = self.pool.num_free - sum(self.pool.is_free(block) for block in reused)
        if fresh + spare_blocks > available:
            return None
        self.pool.share(reused)
        num_cached = len(reused) * self.block_size
        if self.prefix_caching:
            self.num_queried_tokens += len(token_ids)
            self.num_hit_tokens += num_cached
        return BlockTable([*reused, *self.pool.allocate(fresh)], num_cached, last_hash, num_named=len(reused))

    def grow(self, table: BlockTable, num_tokens: int) -> bool:
        """Make room for `num_tokens` in all; False, and nothing done, where the pool has too few blocks."""
        missing = self.blocks_for(num_tokens) - len(table.blocks)
        if missing > self.pool.num_free:
            return False
        if missing > 0:
            table.blocks.extend(self.pool.allocate(missing))
        return True

    def name_full_blocks(self, table: BlockTable, token_ids: Sequence[int], num_computed: int) -> None:
        """Let others reuse the blocks that `num_computed` tokens fill.

        May be called before the step that computes them has run: within a step every layer writes all its keys and
        values before any request attends, so a request of the same step may already share them.
        """
        if not self.prefix_caching:
            return
        while (table.num_named + 1) * self.block_size <= num_computed:
            start = table.num_named * self.block_size
            table.last_hash = chain_hash(table.last_hash, token_ids[start : start + self.block_size])
            self.pool.register(table.blocks[table.num_named], table.last_hash)
            table.num_named += 1

    def close(self, table: BlockTable) -> None:
        self.pool.release(table.blocks)
        table.blocks = []

    def check_integrity(self, tables: Iterable[BlockTable]) -> None:
        self.pool.check_integrity(table.blocks for table in tables)

    def _match(self, token_ids: Sequence[int], salt: str | None) -> tuple[list[int], bytes]:
        """The longest run of cached blocks at the head of `token_ids`, short of its last token, and its hash."""
        blocks: list[int] = []
        last = root_hash(salt)
        for end in range(self.block_size, len(token_ids), self.block_size):
            following = chain_hash(last, token_ids[end - self.block_size : end])
            block = self.pool.lookup(following)
            if block is None:
                break
            blocks.append(block)
            last = following
        return blocks, last
