"""The demo checkpoint against transformers' own reading of the GGUF file it is built from."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, MixtralForCausalLM, PreTrainedModel

from models import Decoder, Tokenizer, load_model, load_tokenizer, resolve_model
from models.demo import _gguf_file
from tests.parity.paged_run import PagedRun, greedy, relative_difference

QUESTIONS = [
    "What is the capital of France? Answer briefly.",
    "Write a haiku about the sea.",
    "Count from 1 to 10.",
    "Explain what a hash table is in two sentences.",
    "Übersetze 'good morning' ins Deutsche. 🙂",
]


@pytest.fixture(scope="module")
def oracle() -> PreTrainedModel:
    gguf = _gguf_file()
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    assert isinstance(model, PreTrainedModel)
    return model.eval()


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_model(resolve_model("demo"), device=torch.device("cpu"), dtype=None, show_progress=False)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(resolve_model("demo"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_the_gguf_model(
    question: str, oracle: PreTrainedModel, decoder: Decoder, tokenizer: Tokenizer
) -> None:
    prompt = tokenizer.encode_chat([{"role": "user", "content": question}])
    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        expected_logits = oracle(tokens).logits[0]
        generated = oracle.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=32, do_sample=False, pad_token_id=2
        )
    logits = PagedRun(decoder, len(prompt), block_size=16).feed(prompt)
    assert relative_difference(logits, expected_logits) < 1e-4
    answer = greedy(decoder, prompt, 32, eos=2)
    assert tokenizer.decode(answer) == tokenizer.decode(generated[0, len(prompt) :].tolist())
    if question == QUESTIONS[0]:
        assert "Paris" in tokenizer.decode(answer)


def test_the_checkpoint_is_an_ordinary_mixtral(decoder: Decoder, tokenizer: Tokenizer) -> None:
    path = resolve_model("demo")
    config = json.loads((path / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["max_position_embeddings"]) == (1, 2, 8192)
    assert config["rope_parameters"]["rope_theta"] == 100000
    assert config["tie_word_embeddings"]
    assert tokenizer.eos_token_ids == {2}
    model = MixtralForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    prompt = tokenizer.encode_chat([{"role": "user", "content": QUESTIONS[1]}])
    with torch.inference_mode():
        expected = model(torch.tensor([prompt])).logits[0]
    assert relative_difference(PagedRun(decoder, len(prompt)).feed(prompt), expected) < 1e-4
