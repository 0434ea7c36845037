"""A Serve config file, checked as far as it can be before anything is started."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

from deployments.settings import Settings, load_api_keys, load_settings

IMPORT_PATH = "deployments.app:build_app"


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """`document` is the file's content with the port in place; `settings` are those of its one application."""

    document: Mapping[str, object]
    settings: Settings
    app_name: str
    host: str
    port: int
    route_prefix: str
    api_key: str | None

    @property
    def url(self) -> str:
        """Where a client on this machine finds it."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0", "::") else self.host
        return f"http://{host}:{self.port}{self.route_prefix.rstrip('/')}"


def read_launch_config(path: Path, port: int | None) -> LaunchConfig:
    """The config in `path`, with `port` instead of its own if given.

    Raises:
        ValueError: it cannot be read, is no Serve config of exactly one Tokenyard application, has wrong settings, or
            the port is taken.
    """
    document = _read_yaml(path)
    if port is not None:
        options = document.get("http_options") or {}
        if not isinstance(options, dict):
            raise ValueError("http_options must be a mapping")
        document = {**document, "http_options": {**options, "port": port}}
    try:
        schema = ServeDeploySchema.model_validate(document)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ValueError("not a Serve config:\n  " + "\n  ".join(lines)) from None
    if [app.import_path for app in schema.applications] != [IMPORT_PATH]:
        raise ValueError(f"it must have one application, with import_path {IMPORT_PATH}")
    app = schema.applications[0]
    settings = load_settings(app.args)
    keys = load_api_keys(settings.http.api_keys_file)
    _require_free_port(schema.http_options.host, schema.http_options.port)
    return LaunchConfig(
        document=document,
        settings=settings,
        app_name=app.name,
        host=schema.http_options.host,
        port=schema.http_options.port,
        route_prefix=app.route_prefix or "/",
        api_key=min(keys, default=None),
    )


def _read_yaml(path: Path) -> dict[str, object]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"not YAML: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("not a Serve config: it must be a mapping")
    return document


def _require_free_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ValueError(f"cannot listen on {host} port {port}: {error}. Another port: --port (PORT=...)") from None
