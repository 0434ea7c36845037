from __future__ import annotations

import hashlib
import struct

from kv_cache import BlockPool, BlockTable, BlockTables


def make(num_blocks: int = 8) -> BlockTables:
    return BlockTables(BlockPool(num_blocks), block_size=4)


def filled(tables: BlockTables, token_ids: list[int], salt: str | None = None) -> BlockTable:
    table = tables.open(token_ids, salt)
    assert table is not None
    tables.name_full_blocks(table, token_ids, len(token_ids))
    return table


def test_a_common_prefix_is_shared_in_whole_blocks() -> None:
    tables = make()
    first = filled(tables, list(range(10)))
    second = tables.open([*range(8), 99, 98], None)
    assert second is not None
    assert second.blocks[:2] == first.blocks[:2]
    assert second.num_cached_tokens == 8
    assert len(set(first.blocks + second.blocks)) == 4
    tables.check_integrity([first, second])


def test_the_last_token_is_always_left_to_compute() -> None:
    tables = make()
    filled(tables, list(range(8)))
    again = tables.open(list(range(8)), None)
    assert again is not None
    assert again.num_cached_tokens == 4


def test_equal_tokens_after_different_ones_are_not_shared() -> None:
    tables = make()
    filled(tables, [1, 2, 3, 4, 5, 6, 7, 8])
    other = tables.open([9, 2, 3, 4, 5, 6, 7, 8, 0], None)
    assert other is not None
    assert other.num_cached_tokens == 0


def test_salts_keep_tenants_apart() -> None:
    tables = make()
    filled(tables, list(range(8)), salt="one")
    for salt in ("two", None, ""):
        table = tables.open([*range(8), 1], salt)
        assert table is not None
        assert table.num_cached_tokens == 0
        tables.close(table)
    same = tables.open([*range(8), 1], "one")
    assert same is not None
    assert same.num_cached_tokens == 8


def test_block_names_are_chained_sha256() -> None:
    tables = make()
    table = filled(tables, [7, 8, 9, 10])
    root = hashlib.sha256(b"tokenyard").digest()
    assert table.last_hash == hashlib.sha256(root + struct.pack("<4I", 7, 8, 9, 10)).digest()


def test_opening_counts_reused_free_blocks_as_taken() -> None:
    tables = make(num_blocks=3)
    tables.close(filled(tables, list(range(12))))
    assert tables.open([*range(8), *range(50, 60)], None) is None  # 2 reused + 3 fresh of 3
    tables.check_integrity([])
    table = tables.open([*range(8), 1], None)
    assert table is not None
    assert table.num_cached_tokens == 8
    assert tables.open([1], None) is None


def test_growing_takes_a_block_at_a_time_or_nothing() -> None:
    tables = make(num_blocks=2)
    table = tables.open([1, 2, 3], None)
    assert table is not None
    assert tables.grow(table, 4)
    assert len(table.blocks) == 1
    assert tables.grow(table, 5)
    assert len(table.blocks) == 2
    assert not tables.grow(table, 9)
    assert len(table.blocks) == 2


def test_without_prefix_caching_nothing_is_shared() -> None:
    tables = BlockTables(BlockPool(8), block_size=4, prefix_caching=False)
    filled(tables, list(range(8)))
    table = tables.open(list(range(9)), None)
    assert table is not None
    assert table.num_cached_tokens == 0


def test_hits_are_counted_in_tokens() -> None:
    tables = make()
    filled(tables, list(range(8)))
    tables.open([*range(8), 1], None)
    assert (tables.num_queried_tokens, tables.num_hit_tokens) == (17, 8)
