"""The shapes that come in. A null means the same as leaving the field out, as in OpenAI's API.

Unknown fields are refused, so that a misspelt `temperture` is not silently ignored; `IGNORED` lists the known fields
that change nothing here, and `UNSUPPORTED` those that would change the answer and are refused unless they ask for
what happens anyway.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag, ValidationInfo, field_validator
from typing_extensions import TypeAliasType

IGNORED = frozenset(
    {
        "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort",
        "safety_identifier", "service_tier", "store", "user", "verbosity",
    }
)  # fmt: skip

# Field -> the values that ask for nothing we lack (null and a missing field always do).
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "chat_template": (),
    "continue_final_message": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "length_penalty": (1, 1.0),
    "logits_processors": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
    "web_search_options": (),
}

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

# One bad item of a list says enough: a list of 100,000 wrong ids must not make 100,000 errors.
# (Named types, because FailFast has no hash, which a union asks of its members before Python 3.14.)
TokenIds = TypeAliasType("TokenIds", Annotated[list[int], FailFast()])
Strings = TypeAliasType("Strings", Annotated[list[str], FailFast()])
ListsOfTokenIds = TypeAliasType("ListsOfTokenIds", Annotated[list[TokenIds], FailFast()])


def _prompt_kind(prompt: object) -> str | None:
    """Tag of the prompt's shape. Tags are no identifiers, so that they can be told from field names in an error."""
    if isinstance(prompt, str):
        return "a-string"
    if not isinstance(prompt, list):
        return None
    first = prompt[0] if prompt else ""
    return "list-of-strings" if isinstance(first, str) else "lists-of-ids" if isinstance(first, list) else "list-of-ids"


def _content_kind(content: object) -> str | None:
    return "a-string" if isinstance(content, str) else "list-of-parts" if isinstance(content, list) else None


Prompt = Annotated[
    Annotated[str, Tag("a-string")]
    | Annotated[Strings, Tag("list-of-strings")]
    | Annotated[TokenIds, Tag("list-of-ids")]
    | Annotated[ListsOfTokenIds, Tag("lists-of-ids")],
    Discriminator(
        _prompt_kind,
        custom_error_type="prompt_type",
        custom_error_message="must be a string, a list of strings, a list of token ids or a list of such lists",
    ),
]


class TextPart(BaseModel):
    """The one kind of content part a text model reads."""

    model_config = _STRICT

    type: Literal["text"]
    text: str


TextParts = TypeAliasType("TextParts", Annotated[list[TextPart], FailFast()])
Content = Annotated[
    Annotated[str, Tag("a-string")] | Annotated[TextParts, Tag("list-of-parts")],
    Discriminator(
        _content_kind,
        custom_error_type="content_type",
        custom_error_message="must be a string or a list of text parts",
    ),
]


class Message(BaseModel):
    """One message of a chat. Clients send back what they were given (`refusal`, `audio`, ...): the rest is ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = Field(default=None, validate_default=True)
    name: str | None = None
    tool_calls: list[object] | None = None

    @field_validator("content")
    @classmethod
    def _has_content(cls, content: Content | None, info: ValidationInfo) -> Content | None:
        if content is None and info.data.get("role", "assistant") != "assistant":
            raise ValueError("a message needs content")
        return content

    @field_validator("tool_calls")
    @classmethod
    def _no_tool_calls(cls, tool_calls: list[object] | None) -> None:
        if tool_calls:
            raise ValueError("tool calls are not supported")


class StreamOptions(BaseModel):
    """`include_usage`: a last chunk with the usage and no choices; `continuous_usage_stats`: usage in every chunk."""

    model_config = _STRICT

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False  # OpenAI's padding against traffic analysis: a hint, ignored


class GenerationRequest(BaseModel):
    """What chat and plain completions share. Ranges are `engine.SamplingParams`' to check."""

    model_config = _STRICT

    model: str
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = Field(default=0, ge=-1)
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[str, float] = Field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    best_of: int | None = None
    stop: str | Strings = Field(default_factory=list)
    stop_token_ids: TokenIds = Field(default_factory=list)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    prompt_logprobs: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)

    @field_validator("best_of")
    @classmethod
    def _one_of_one(cls, best_of: int | None, info: ValidationInfo) -> int | None:
        if best_of is not None and best_of != info.data.get("n"):
            raise ValueError("choosing the best of more choices than are returned is not supported")
        return best_of

    @field_validator("stream_options")
    @classmethod
    def _only_streaming(cls, options: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if options is not None and not info.data.get("stream"):
            raise ValueError("allowed only when stream is true")
        return options


class ChatCompletionRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _with_logprobs(cls, top_logprobs: int | None, info: ValidationInfo) -> int | None:
        if top_logprobs is not None and not info.data.get("logprobs"):
            raise ValueError("allowed only when logprobs is true")
        return top_logprobs


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. With `echo`, `max_tokens` 0 scores the prompt and generates nothing."""

    prompt: Prompt
    max_tokens: int | None = 16
    logprobs: int | None = None
    echo: bool = False
    add_special_tokens: bool = True


class TokenizeRequest(BaseModel):
    """POST /tokenize: one of `prompt` and `messages`."""

    model_config = _STRICT

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = Field(default=None, min_length=1, validate_default=True)
    add_special_tokens: bool = True

    @field_validator("messages")
    @classmethod
    def _one_of_both(cls, messages: list[Message] | None, info: ValidationInfo) -> list[Message] | None:
        if "prompt" in info.data and (messages is None) == (info.data["prompt"] is None):
            raise ValueError("give either prompt or messages")
        return messages


class DetokenizeRequest(BaseModel):
    """POST /detokenize."""

    model_config = _STRICT

    model: str | None = None
    tokens: TokenIds
