from __future__ import annotations

import pytest

from kv_cache import BlockPool


def test_blocks_without_a_name_are_handed_out_before_a_cached_one_is_evicted() -> None:
    pool = BlockPool(3)
    first, second = pool.allocate(2)
    pool.register(first, b"first")
    pool.release([first, second])
    assert pool.allocate(2) != [first]
    assert pool.lookup(b"first") == first
    assert pool.allocate(1) == [first]
    assert pool.lookup(b"first") is None
    assert pool.num_evictions == 1
    pool.check_integrity([[0], [1], [2]])
    pool.register(first, b"next")
    assert pool.lookup(b"next") == first


def test_the_least_recently_released_is_evicted_first_and_a_table_from_its_tail() -> None:
    pool = BlockPool(3)
    table = pool.allocate(2)
    other = pool.allocate(1)
    for block in (*table, *other):
        pool.register(block, bytes([block]))
    pool.release(table)
    pool.release(other)
    assert pool.allocate(3) == [table[1], table[0], other[0]]


def test_a_shared_block_is_free_only_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(1)
    table = pool.allocate(1)
    pool.register(table[0], b"x")
    pool.share(table)
    pool.release(table)
    assert pool.num_free == 0
    pool.check_integrity([table])
    pool.release(table)
    assert pool.num_free == 1
    pool.check_integrity([])


def test_a_copy_of_a_content_stays_nameless() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.register(first, b"x")
    pool.register(second, b"x")
    assert pool.lookup(b"x") == first
    pool.release([second])
    pool.check_integrity([[first]])
    assert pool.num_cached == 1


def test_dropping_the_cache_forgets_held_blocks_too() -> None:
    pool = BlockPool(2)
    table = pool.allocate(2)
    for block in table:
        pool.register(block, bytes([block]))
    pool.release(table[1:])
    pool.drop_cached()
    assert pool.lookup(bytes([table[0]])) is None
    pool.check_integrity([table[:1]])


@pytest.mark.parametrize("holders", [[], [[0], [0]], [[0, 1]]], ids=["lost", "held twice", "one too many"])
def test_integrity_fails_for_a_holder_it_does_not_know(holders: list[list[int]]) -> None:
    pool = BlockPool(2)
    assert pool.allocate(1) == [0]
    pool.check_integrity([[0]])
    with pytest.raises(AssertionError):
        pool.check_integrity(holders)


def test_releasing_twice_is_caught() -> None:
    pool = BlockPool(1)
    table = pool.allocate(1)
    pool.release(table)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(table)
