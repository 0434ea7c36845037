"""The bytes behind the printable strings that vocabularies are written in."""

from __future__ import annotations

import re
from typing import Protocol

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


class TokenAlphabet(Protocol):
    """How a vocabulary writes bytes."""

    def to_bytes(self, token: str) -> bytes: ...


class ByteLevel:
    """GPT-2's alphabet: each byte is one printable character (`bytes_to_unicode` in openai/gpt-2's encoder.py)."""

    def __init__(self) -> None:
        printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
        others = [byte for byte in range(256) if byte not in printable]
        self._byte_of = {chr(byte): byte for byte in printable}
        self._byte_of |= {chr(256 + index): byte for index, byte in enumerate(others)}

    def to_bytes(self, token: str) -> bytes:
        return bytes(self._byte_of[character] for character in token)


class Pieces:
    """SentencePiece's: U+2581 is a space, and `<0x41>` one byte."""

    def to_bytes(self, token: str) -> bytes:
        if match := _BYTE_PIECE.fullmatch(token):
            return bytes([int(match[1], 16)])
        return token.replace("\u2581", " ").encode()
