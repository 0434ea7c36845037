from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import SamplingParams, TextDelta, TextStream, TokenDelta
from models.tokenizer import Tokenizer

EOS = 256


@dataclass
class ByteTokenizer:
    """Token i is byte i; 256 is special."""

    special_token_ids: frozenset[int] = field(default_factory=lambda: frozenset({EOS}))

    def token_bytes(self, token_id: int) -> bytes:
        return b"<eos>" if token_id == EOS else bytes([token_id])


def make(**options: object) -> TextStream:
    return TextStream(cast(Tokenizer, ByteTokenizer()), SamplingParams(**options))  # type: ignore[arg-type]


def push_all(stream: TextStream, token_ids: Sequence[int], last: str = "length") -> list[TextDelta]:
    """One token a delta, as the engine sends them; stops where a caller would."""
    deltas: list[TextDelta] = []
    for index, token_id in enumerate(token_ids):
        ends = index == len(token_ids) - 1
        delta = TokenDelta(
            "r",
            (token_id,),
            finish_reason=cast(None, last) if ends else None,
            stop_token_id=token_id if ends and last == "stop" else None,
        )
        deltas.append(stream.push(delta))
        if deltas[-1].finish_reason is not None:
            break
    return deltas


def text_of(deltas: Sequence[TextDelta]) -> str:
    return "".join(delta.text for delta in deltas)


def test_half_a_character_is_never_sent() -> None:
    deltas = push_all(make(), list("aé漢😀z".encode()))
    assert [delta.text for delta in deltas] == ["a", "", "é", "", "", "漢", "", "", "", "😀", "z"]


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    assert text_of(push_all(make(), list("a😀".encode())[:-1])) == "a\ufffd"


def test_a_stop_string_ends_the_text_before_it_and_no_part_of_it_is_sent() -> None:
    deltas = push_all(make(stop=("END",)), list(b"abcENDdef"))
    assert [delta.text for delta in deltas] == ["a", "b", "c", "", "", ""]
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].stop_reason == "END"


def test_a_near_miss_is_sent_when_it_cannot_match_any_more() -> None:
    deltas = push_all(make(stop=("END",)), list(b"ENx"))
    assert [delta.text for delta in deltas] == ["", "", "ENx"]


def test_a_near_miss_at_the_end_is_sent() -> None:
    deltas = push_all(make(stop=("END",)), list(b"aEN"))
    assert text_of(deltas) == "aEN"
    assert deltas[-1].finish_reason == "length"


def test_a_stop_string_that_overlaps_itself_is_found() -> None:
    assert text_of(push_all(make(stop=("aab",)), list(b"aaab!"))) == "a"


def test_of_two_stop_strings_the_first_in_the_text_wins() -> None:
    deltas = push_all(make(stop=("yz", "x")), list(b"axyz"))
    assert (text_of(deltas), deltas[-1].stop_reason) == ("a", "x")


def test_the_stop_string_is_kept_on_request() -> None:
    assert text_of(push_all(make(stop=("END",), include_stop_str_in_output=True), list(b"abENDc"))) == "abEND"


def test_a_stop_token_is_not_shown_and_says_which_it_was() -> None:
    deltas = push_all(make(stop_token_ids=(ord("!"),)), list(b"ab!"), last="stop")
    assert (text_of(deltas), deltas[-1].stop_reason) == ("ab", ord("!"))
    assert deltas[-1].token_ids == (ord("!"),)


def test_eos_gives_no_stop_reason() -> None:
    deltas = push_all(make(), [*b"ab", EOS], last="stop")
    assert (text_of(deltas), deltas[-1].stop_reason) == ("ab", None)


@pytest.mark.parametrize(("skip", "text"), [(True, "ab"), (False, "a<eos>b")])
def test_special_tokens_are_skipped_or_shown(skip: bool, text: str) -> None:
    assert text_of(push_all(make(skip_special_tokens=skip), [ord("a"), EOS, ord("b")])) == text


def test_a_stop_string_does_not_count_before_min_tokens() -> None:
    deltas = push_all(make(stop=("ab",), min_tokens=3, max_tokens=10), list(b"ab-ab-"))
    assert text_of(deltas) == "ab-"
    assert len(deltas) == 5


def test_tokens_after_the_stop_string_in_one_delta_are_not_kept() -> None:
    delta = make(stop=("b",)).push(TokenDelta("r", tuple(b"abc")))
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("a", tuple(b"ab"), "stop")


@settings(max_examples=400, deadline=None)
@given(
    text=st.text(alphabet="ab😀é", max_size=30),
    stops=st.lists(st.text(alphabet="ab😀é", min_size=1, max_size=4), max_size=4),
    cuts=st.lists(st.integers(1, 9), max_size=20),
)
def test_the_text_is_what_stands_before_the_first_stop_string(text: str, stops: list[str], cuts: list[int]) -> None:
    """The oracle is a search over the whole text, by the byte at which a stop string is complete."""
    data = text.encode()
    ends = [(data.find(s.encode()) + len(s.encode()), data.find(s.encode())) for s in stops if s.encode() in data]
    complete = min((end for end, _ in ends), default=None)
    start = min((begin for end, begin in ends if end == complete), default=len(data))
    stream, sent, rest = make(stop=tuple(stops)), "", list(data)
    while True:
        count = cuts.pop(0) if cuts else 1
        chunk, rest = rest[:count], rest[count:]
        delta = stream.push(TokenDelta("r", tuple(chunk), finish_reason=None if rest else "length"))
        sent += delta.text
        assert text.startswith(sent)
        if delta.finish_reason is not None:
            break
    assert sent == data[:start].decode()
