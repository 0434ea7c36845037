"""Text <-> token ids, by the tokenizer that came with a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from models.config_json import read_json_object
from models.token_bytes import ByteLevel, Pieces, TokenAlphabet

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class Tokenizer:
    """A checkpoint's tokenizer and chat template.

    `vocab_size` counts the ids it knows: 0 to vocab_size - 1. `eos_token_ids` end a generation: the tokenizer's own and
    those of config.json and generation_config.json. `special_token_ids` are not text unless asked for.
    """

    def __init__(self, inner: PreTrainedTokenizerFast, eos_token_ids: frozenset[int]) -> None:
        self._inner = inner
        self.eos_token_ids = eos_token_ids
        self.vocab_size = len(inner)
        added = inner.added_tokens_decoder
        self.special_token_ids = frozenset(inner.all_special_ids) | {i for i, token in added.items() if token.special}
        self._added_texts = {token_id: str(token) for token_id, token in added.items()}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of `text`; special tokens written out in it count as themselves."""
        ids: list[int] = self._inner.encode(text, add_special_tokens=add_special_tokens, verbose=False)
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`; bytes that are no whole character become U+FFFD."""
        text = self._inner.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def encode_chat(self, messages: list[dict[str, object]]) -> list[int]:
        """Ids of a conversation in the checkpoint's own template, ready for the assistant's answer.

        Raises:
            ValueError: the checkpoint has no template, or the template rejects the messages; says why.
        """
        from jinja2 import TemplateError  # noqa: PLC0415 - only chats need it

        if not self._inner.chat_template:
            raise ValueError("this model has no chat template; use plain completions")
        try:
            text = self._inner.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise ValueError(f"the model's chat template rejects these messages: {error}") from None
        assert isinstance(text, str)
        return self.encode(text, add_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text, in UTF-8; maybe only part of a character. Special tokens are their own text.

        Nothing for ids from vocab_size up: models are often padded to more rows than their tokenizer has tokens.
        """
        assert token_id >= 0
        if token_id in self._added_texts:
            return self._added_texts[token_id].encode()
        if token_id >= self.vocab_size:
            return b""
        token = self._inner.convert_ids_to_tokens(token_id)
        assert isinstance(token, str)
        return self._alphabet.to_bytes(token)

    def token_text(self, token_id: int) -> str:
        """A token as text for people; bytes that are no whole character become U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    @cached_property
    def _alphabet(self) -> TokenAlphabet:
        decoder = json.loads(self._inner.backend_tokenizer.to_str())["decoder"]
        steps = (decoder or {}).get("decoders", [decoder])
        is_byte_level = any(step is not None and step["type"] == "ByteLevel" for step in steps)
        return ByteLevel() if is_byte_level else Pieces()


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the checkpoint in directory `path`.

    Raises:
        ValueError: the directory has none that can be read.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415 - takes seconds

    try:
        inner = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"no tokenizer can be loaded from {path}: {error}") from None
    if not isinstance(inner, PreTrainedTokenizerFast):
        raise ValueError(f"{path} has no tokenizer.json (found a {type(inner).__name__})")
    eos_token_ids = _eos_ids(path / "config.json") | _eos_ids(path / "generation_config.json")
    own_eos = () if inner.eos_token_id is None else (int(inner.eos_token_id),)
    return Tokenizer(inner, eos_token_ids | frozenset(own_eos))


def _eos_ids(path: Path) -> frozenset[int]:
    """The eos ids of a config file, one or many; none if there is no such file."""
    if not path.is_file():
        return frozenset()
    value = read_json_object(path).get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return frozenset(token_id for token_id in values if isinstance(token_id, int))
