"""Checkpoints on disk -> something that runs."""

from models.decoder import Decoder
from models.families import load_spec
from models.loader import load_model
from models.resolve import resolve_model
from models.spec import ModelSpec
from models.tokenizer import Tokenizer, load_tokenizer

__all__ = ["Decoder", "ModelSpec", "Tokenizer", "load_model", "load_spec", "load_tokenizer", "resolve_model"]
