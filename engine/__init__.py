"""One rank's engine: `LLM` for offline use, `EngineLoop` behind a server."""

from engine.engine import Engine, EngineStats
from engine.llm import LLM
from engine.loop import EngineDeadError, EngineLoop, QueueFullError
from engine.outputs import Choice, FinishReason, RequestOutput, TokenDelta, TokenLogprobs
from engine.request import EngineRequest
from engine.sampling_params import InvalidParameterError, SamplingParams
from engine.settings import EngineConfig
from engine.text_stream import TextDelta, TextStream

__all__ = [
    "LLM",
    "Choice",
    "Engine",
    "EngineConfig",
    "EngineDeadError",
    "EngineLoop",
    "EngineRequest",
    "EngineStats",
    "FinishReason",
    "InvalidParameterError",
    "QueueFullError",
    "RequestOutput",
    "SamplingParams",
    "TextDelta",
    "TextStream",
    "TokenDelta",
    "TokenLogprobs",
]
