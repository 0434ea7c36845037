"""What the stock `openai` client gets."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

from tests.serve.served_app import QUESTION, ServedApp

MESSAGES = [{"role": "user", "content": QUESTION}]


def ask(client: OpenAI, **options: object) -> openai.types.chat.ChatCompletion:
    options = {"temperature": 0, "max_tokens": 24, **options}
    return client.chat.completions.create(model="demo", messages=MESSAGES, **options)  # type: ignore[call-overload,no-any-return]


def complete(client: OpenAI, prompt: object, **options: object) -> openai.types.Completion:
    options = {"temperature": 0, "max_tokens": 8, **options}
    return client.completions.create(model="demo", prompt=prompt, **options)  # type: ignore[call-overload,no-any-return]


def test_paris(client: OpenAI) -> None:
    answer = ask(client)
    choice = answer.choices[0]
    assert "Paris" in (choice.message.content or "")
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens < 24


def test_paris_streamed_is_the_same(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        temperature=0,
        max_completion_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)
    whole = ask(client)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert "Paris" in text
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant"] + [None] * (len(chunks) - 1)
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.completion_tokens == whole.usage.completion_tokens


def test_a_repeated_prompt_comes_from_the_cache(client: OpenAI) -> None:
    ask(client, max_tokens=1)
    answer = ask(client, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert (answer.usage.prompt_tokens_details.cached_tokens or 0) >= 16
    salted = ask(client, max_tokens=1, extra_body={"cache_salt": "mine alone"})
    assert salted.usage is not None
    assert salted.usage.prompt_tokens_details is not None
    assert salted.usage.prompt_tokens_details.cached_tokens == 0


def test_logprobs(client: OpenAI) -> None:
    answer = ask(client, logprobs=True, top_logprobs=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    said = b"".join(bytes(t.bytes or []) for t in logprobs.content if t.token != "<|im_end|>")
    assert said.decode() == answer.choices[0].message.content
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy
        assert token.logprob == pytest.approx(token.top_logprobs[0].logprob)


def test_a_seed_repeats_and_choices_differ(client: OpenAI) -> None:
    def texts() -> list[str]:
        answer = complete(client, "Once upon a time", temperature=1.0, seed=11, n=3, max_tokens=12)
        return [choice.text for choice in answer.choices]

    first = texts()
    assert first == texts()
    assert len(set(first)) == 3
    alone = complete(client, "Once upon a time", temperature=1.0, seed=11, max_tokens=12)
    assert alone.choices[0].text == first[0]


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_string_is_never_sent(client: OpenAI, stream: bool) -> None:
    prompt = "Count: one, two, three, four,"
    free = complete(client, prompt, max_tokens=12).choices[0].text
    stop = free[5:9]
    kept = free[: free.index(stop)]
    answer = complete(client, prompt, max_tokens=12, stop=[stop, "never said"], stream=stream)
    if stream:
        chunks = list(answer)
        text = "".join(chunk.choices[0].text for chunk in chunks)  # type: ignore[attr-defined]
        reason = chunks[-1].choices[0].finish_reason  # type: ignore[attr-defined]
    else:
        text, reason = answer.choices[0].text, answer.choices[0].finish_reason
    assert (text, reason) == (kept, "stop")


def test_every_kind_of_prompt(client: OpenAI, app: ServedApp) -> None:
    texts = ["The capital of France is", "The sun rises in the"]
    alone = [complete(client, text).choices[0].text for text in texts]
    together = complete(client, texts)
    assert [choice.text for choice in together.choices] == alone
    ids = [tokenize(client, text) for text in texts]
    assert [choice.text for choice in complete(client, ids).choices] == alone
    assert complete(client, ids[0]).choices[0].text == alone[0]
    assert together.usage is not None
    assert together.usage.prompt_tokens == sum(map(len, ids))


def test_echo_scores_the_prompt(client: OpenAI) -> None:
    text = "The capital of France is Paris"
    ids = tokenize(client, text)
    answer = complete(client, text, echo=True, max_tokens=0, logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.text_offset is not None
    assert answer.choices[0].text == text == "".join(logprobs.tokens)
    assert len(logprobs.tokens) == len(ids)
    assert [
        text[offset:].startswith(token) for offset, token in zip(logprobs.text_offset, logprobs.tokens, strict=True)
    ]
    assert logprobs.token_logprobs[0] is None
    unlikely = complete(client, "The capital of France is Madrid", echo=True, max_tokens=0, logprobs=1)
    assert unlikely.choices[0].logprobs is not None
    assert unlikely.choices[0].logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[-1] > unlikely.choices[0].logprobs.token_logprobs[-1]
    # What is scored is what is drawn: the first token after the prompt has the same log probability either way.
    drawn = complete(client, "The capital of France is", max_tokens=1, logprobs=1).choices[0].logprobs
    assert drawn is not None
    assert drawn.tokens == [" Paris"]
    assert drawn.token_logprobs is not None
    assert drawn.token_logprobs[0] == pytest.approx(logprobs.token_logprobs[-1], abs=1e-3)


def test_min_tokens_and_ignore_eos(client: OpenAI) -> None:
    answer = ask(client, max_tokens=20, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (20, "length")
    answer = ask(client, max_tokens=20, extra_body={"min_tokens": 20})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 20


def test_logit_bias_bans_a_token(client: OpenAI) -> None:
    paris = tokenize(client, " Paris")
    assert len(paris) == 1
    answer = ask(client, logit_bias={str(paris[0]): -100})
    assert " Paris" not in (answer.choices[0].message.content or "")


def test_models(client: OpenAI) -> None:
    (card,) = client.models.list().data
    assert card.id == "demo"
    assert client.models.retrieve("demo") == card
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-9")
    assert caught.value.code == "model_not_found"


def test_errors_are_the_clients_own_types(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, temperature=-1)
    assert (caught.value.param, caught.value.code) == ("temperature", "invalid_value")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "hi"}])


def tokenize(client: OpenAI, text: str) -> list[int]:
    url = str(client.base_url).replace("/v1/", "/tokenize")
    answer = client.post(url, body={"model": "demo", "prompt": text}, cast_to=object)
    assert isinstance(answer, dict)
    return list(answer["tokens"])
