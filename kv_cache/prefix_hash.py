"""Names for the content of KV blocks: equal tokens after equal tokens have equal names, on every machine.

SHA-256, because a collision would serve one user's context to another; chained, because a block's keys and values
depend on everything before it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence


def root_hash(salt: str | None) -> bytes:
    """Where a chain starts. Requests share blocks only with requests of the same salt."""
    return hashlib.sha256(b"tokenyard" if salt is None else b"salt:" + salt.encode("utf-8", "surrogatepass")).digest()


def chain_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The name of a full block of `token_ids` (each below 2**32) that follows `parent`."""
    return hashlib.sha256(parent + struct.pack(f"<{len(token_ids)}I", *token_ids)).digest()
