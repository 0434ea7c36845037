"""Ids, reference counts and prefix hashes of the blocks of one paged KV cache."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Hands out block ids 0 to num_blocks - 1.

    A block is free (nobody holds it) or held (by one or more tables). A free block whose content is known by its hash
    stays cached: it can be taken up again by hash until it is evicted, the least recently released first. Blocks
    without a hash are always handed out before a cached one is evicted.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a KV cache needs at least one block, got {num_blocks}")
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free_plain = list(range(num_blocks - 1, -1, -1))
        self._free_cached: OrderedDict[int, None] = OrderedDict()
        self.num_evictions = 0

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` could hand out now, cached ones among them."""
        return len(self._free_plain) + len(self._free_cached)

    @property
    def num_cached(self) -> int:
        """Blocks whose content can be found by hash, held or free."""
        return len(self._block_of)

    def is_free(self, block: int) -> bool:
        return self._ref_counts[block] == 0

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks for writing, evicting cached ones if it must. The caller has checked `num_free`."""
        assert count <= self.num_free, f"{count} blocks wanted, {self.num_free} free"
        blocks = [self._take_one() for _ in range(count)]
        for block in blocks:
            self._ref_counts[block] = 1
        return blocks

    def lookup(self, block_hash: bytes) -> int | None:
        """The block that holds this content, if one does."""
        return self._block_of.get(block_hash)

    def share(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks once more: each was found by `lookup` since the last `allocate`."""
        for block in blocks:
            assert self._hash_of[block] is not None, f"block {block} is not cached"
            if self._ref_counts[block] == 0:
                del self._free_cached[block]
            self._ref_counts[block] += 1

    def register(self, block: int, block_hash: bytes) -> None:
        """Make a held block's content known. The first block of a content keeps the name; a copy stays nameless."""
        assert self._ref_counts[block] > 0, f"block {block} is free"
        if block_hash in self._block_of:
            return
        assert self._hash_of[block] is None, f"block {block} already has a hash"
        self._hash_of[block] = block_hash
        self._block_of[block_hash] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of a table's blocks, in table order: its tail is evicted before its head, which more share."""
        for block in reversed(blocks):
            assert self._ref_counts[block] > 0, f"block {block} released twice"
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                if self._hash_of[block] is None:
                    self._free_plain.append(block)
                else:
                    self._free_cached[block] = None

    def drop_cached(self) -> None:
        """Forget every cached content, as after new weights."""
        for block in self._free_cached:
            self._free_plain.append(block)
        self._free_cached.clear()
        self._block_of.clear()
        self._hash_of = [None] * self.num_blocks

    def check_integrity(self, holders: Iterable[Sequence[int]]) -> None:
        """Assert free + held = total and that every count is explained by `holders` (block tables, leases)."""
        held = Counter(block for table in holders for block in table)
        free = [*self._free_plain, *self._free_cached]
        assert len(set(free)) == len(free), "a block is free twice"
        assert len(free) + len(held) == self.num_blocks, f"{len(free)} free + {len(held)} held != {self.num_blocks}"
        for block, count in enumerate(self._ref_counts):
            assert count == held[block], f"block {block}: count {count}, held by {held[block]}"
        for block_hash, block in self._block_of.items():
            assert self._hash_of[block] == block_hash, f"block {block} is cached under a hash it does not have"
        assert sum(h is not None for h in self._hash_of) == len(self._block_of)

    def _take_one(self) -> int:
        if self._free_plain:
            return self._free_plain.pop()
        block, _ = self._free_cached.popitem(last=False)
        block_hash = self._hash_of[block]
        assert block_hash is not None
        del self._block_of[block_hash]
        self._hash_of[block] = None
        self.num_evictions += 1
        return block
