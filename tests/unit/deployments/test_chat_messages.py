from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deployments.errors import ApiError
from deployments.openai_api import Message
from deployments.prompts import tokenize_chat
from models.tokenizer import Tokenizer, load_tokenizer
from tests.tiny_models import byte_tokenizer

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "[{{ m.role }}{{ '/' + m.name if m.name else '' }}:{{ m.content }}]{% endfor %}"
)


@pytest.fixture
def speaking(tmp_path: Path) -> Tokenizer:
    """Its template writes out what it is given."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    return load_tokenizer(tmp_path)


def rendered(tokenizer: Tokenizer, *messages: dict[str, object]) -> str:
    checked = [Message.model_validate(message) for message in messages]
    return tokenizer.decode(asyncio.run(tokenize_chat(tokenizer, checked)))


def test_what_the_template_sees(speaking: Tokenizer) -> None:
    text = rendered(
        speaking,
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "ann"},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "user", "content": ""},
    )
    assert text == "[system:be brief][user/ann:a\nb][assistant:][assistant:][user:]"


def test_a_long_chat_is_the_same(speaking: Tokenizer) -> None:
    """Which goes through a thread."""
    assert rendered(speaking, {"role": "user", "content": "x" * 10_000}) == f"[user:{'x' * 10_000}]"


def test_what_the_template_rejects_is_the_clients_to_know(speaking: Tokenizer) -> None:
    with pytest.raises(ApiError, match="no tools here") as caught:
        rendered(speaking, {"role": "tool", "content": "42"})
    assert (caught.value.status, caught.value.param) == (400, "messages")
