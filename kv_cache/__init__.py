"""The paged KV cache: which block belongs to whom (no torch), and the tensors behind the ids."""

from kv_cache.block_pool import BlockPool
from kv_cache.block_tables import BlockTable, BlockTables

__all__ = ["BlockPool", "BlockTable", "BlockTables"]
