"""The `args` of the Serve application in a config file, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine import EngineConfig

_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSettings(BaseModel):
    """Which checkpoint is served, under which name, and in which numbers."""

    model_config = _STRICT

    path: str = "demo"
    served_name: str | None = Field(default=None, min_length=1)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"

    @property
    def model_id(self) -> str:
        """The name clients write in `model`: `served_name`, or the last part of the path."""
        return self.served_name or Path(self.path).name


class EngineSettings(BaseModel):
    """Sizes of one replica's engine; `engine.EngineConfig` says what each one means."""

    model_config = _STRICT

    block_size: int = Field(default=16, ge=1)
    kv_cache_gib: float = Field(default=1.0, gt=0)
    max_model_len: int | None = Field(default=None, ge=2)
    max_num_seqs: int = Field(default=64, ge=1)
    max_num_batched_tokens: int = Field(default=1024, ge=1)
    max_waiting: int = Field(default=256, ge=0)
    enable_prefix_caching: bool = True
    num_threads: int | None = Field(default=None, ge=1)


class HttpSettings(BaseModel):
    """What the HTTP face accepts, and for how long it works on it."""

    model_config = _STRICT

    api_keys_file: Path | None = None
    max_body_bytes: int = Field(default=4 * 2**20, ge=1024)
    request_timeout_s: float = Field(default=600.0, gt=0)
    health_timeout_s: float = Field(default=5.0, gt=0)
    max_choices: int = Field(default=128, ge=1, description="prompts x n of one request")


class DecodeSettings(BaseModel):
    """How many engines run, and what each takes from the cluster."""

    model_config = _STRICT

    num_replicas: int = Field(default=1, ge=1)
    num_cpus: float = Field(default=1.0, gt=0)
    num_gpus: float = Field(default=0.0, ge=0)


class IngressSettings(BaseModel):
    """How many HTTP replicas run, and what each takes from the cluster."""

    model_config = _STRICT

    num_replicas: int = Field(default=1, ge=1)
    num_cpus: float = Field(default=0.5, gt=0)


class Settings(BaseModel):
    """Everything a deployment can be told."""

    model_config = _STRICT

    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    http: HttpSettings = HttpSettings()
    decode: DecodeSettings = DecodeSettings()
    ingress: IngressSettings = IngressSettings()

    def engine_config(self) -> EngineConfig:
        return EngineConfig(
            model=self.model.path,
            dtype=self.model.dtype,
            device=self.model.device,
            block_size=self.engine.block_size,
            kv_cache_gib=self.engine.kv_cache_gib,
            max_model_len=self.engine.max_model_len,
            max_num_seqs=self.engine.max_num_seqs,
            max_num_batched_tokens=self.engine.max_num_batched_tokens,
            max_waiting=self.engine.max_waiting,
            enable_prefix_caching=self.engine.enable_prefix_caching,
            num_threads=self.engine.num_threads,
        )


def load_settings(args: Mapping[str, object]) -> Settings:
    """Settings from a config file's `args`.

    Raises:
        ValueError: one line for each wrong setting, named by its path in the file.
    """
    try:
        return Settings.model_validate(args)
    except ValidationError as error:
        lines = [f"args.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ValueError("bad settings:\n  " + "\n  ".join(lines)) from None


def load_api_keys(path: Path | None) -> frozenset[str]:
    """The keys in `path`, one a line; lines that are empty or start with # do not count. None: no keys are asked for.

    Raises:
        ValueError: the file cannot be read, or has no key in it (which would either lock everyone out or let all in).
    """
    if path is None:
        return frozenset()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"http.api_keys_file: cannot read {path}: {error}") from None
    keys = frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise ValueError(f"http.api_keys_file: no key in {path}")
    return keys
