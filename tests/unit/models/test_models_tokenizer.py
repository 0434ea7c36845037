"""The tokenizer wrapper, on small tokenizers made here and on the demo's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from models import Tokenizer, load_tokenizer, resolve_model

TEXTS = ["Hello, world", "naïve café", "日本語のテキスト", "🙂👨‍👩‍👧", "tab\tnewline\n  two spaces", "\x00\x7f"]


@pytest.fixture(scope="module")
def demo() -> Tokenizer:
    return load_tokenizer(resolve_model("demo"))


def byte_level() -> Backend:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    return backend


def byte_fallback() -> Backend:
    """Pieces with U+2581 for a space, and a byte each for what is not in the vocabulary, as Llama 2's."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "H", "e", "l", "o", "w", "\u2581w"]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, [("\u2581", "w")], byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]  # as in Llama 2's tokenizer.json
    )
    return backend


def saved(backend: Backend, path: Path, **special: str) -> Path:
    backend.add_special_tokens([AddedToken(text, special=True) for text in special.values()])
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(path)
    return path


@pytest.mark.parametrize("make_backend", [byte_level, byte_fallback])
@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_the_tokens_are_the_text(make_backend: object, text: str, tmp_path: Path) -> None:
    assert callable(make_backend)
    tokenizer = load_tokenizer(saved(make_backend(), tmp_path, eos_token="</s>"))
    assert b"".join(tokenizer.token_bytes(token) for token in tokenizer.encode(text)) == text.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_the_demos_tokens_decode_to_the_text(demo: Tokenizer, text: str) -> None:
    ids = demo.encode(text)
    assert demo.decode(ids) == text
    assert b"".join(map(demo.token_bytes, ids)) == text.encode()


def test_special_tokens_are_their_own_text(demo: Tokenizer) -> None:
    assert demo.encode("<|im_start|>user") == [1, *demo.encode("user")]
    assert demo.token_bytes(1) == b"<|im_start|>"
    assert demo.decode([1, *demo.encode("user")]) == "user"
    assert demo.decode([1, *demo.encode("user")], skip_special_tokens=False) == "<|im_start|>user"


def test_added_tokens_are_not_read_in_the_vocabularys_alphabet(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(byte_level(), tmp_path, eos_token="<fin é>"))
    (eos,) = tokenizer.eos_token_ids
    assert tokenizer.token_bytes(eos) == "<fin é>".encode()


def test_part_of_a_character_is_shown_as_a_replacement(demo: Tokenizer) -> None:
    parts = [token for token in demo.encode("🙂") if len(demo.token_bytes(token)) < 4]
    assert parts
    assert "\ufffd" in demo.token_text(parts[0])


def test_an_id_of_a_padded_vocabulary_adds_nothing(demo: Tokenizer) -> None:
    assert demo.vocab_size == 49152
    assert demo.token_bytes(49151) != b""
    assert (demo.token_bytes(49152), demo.token_text(60000)) == (b"", "")


def test_a_chat_is_rendered_by_the_checkpoints_template(demo: Tokenizer) -> None:
    ids = demo.encode_chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert demo.decode(ids, skip_special_tokens=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "user", "content": None}, {"content": "no role"}])
def test_messages_the_template_rejects_are_a_value_error(demo: Tokenizer, message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="chat template rejects these messages"):
        demo.encode_chat([message])


def test_a_template_that_raises_says_why(tmp_path: Path) -> None:
    saved(byte_level(), tmp_path, eos_token="</s>")
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match="roles must alternate"):
        load_tokenizer(tmp_path).encode_chat([{"role": "user", "content": "Hi"}])


def test_no_template_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no chat template"):
        load_tokenizer(saved(byte_level(), tmp_path, eos_token="</s>")).encode_chat([])


def test_eos_ids_come_from_all_three_places(tmp_path: Path) -> None:
    backend = byte_level()
    saved(backend, tmp_path, eos_token="</s>")
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7, "model_type": "llama"}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9]}))
    assert load_tokenizer(tmp_path).eos_token_ids == {7, 8, 9, backend.token_to_id("</s>")}


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"no tokenizer can be loaded from {tmp_path}"):
        load_tokenizer(tmp_path)


def test_importing_models_does_not_import_transformers() -> None:
    code = "import sys, models; models.resolve_model('demo'); print('transformers' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
