"""Reading a checkpoint's config.json with errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


class ConfigJson:
    """The fields of a config.json, or of an object inside it, read with their types checked.

    A field that is absent and one that is null are the same: the default, or a ValueError where there is none.
    """

    def __init__(self, fields: Mapping[str, object], source: str) -> None:
        self._fields = fields
        self.source = source

    def has(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be an integer, found {value!r}")
        return value

    def positive(self, name: str, default: int | None = None) -> int:
        value = self.integer(name, default)
        if value < 1:
            raise self.error(name, f"must be at least 1, found {value}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"must be a number, found {value!r}")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, found {value!r}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"must be a string, found {value!r}")
        return value

    def array(self, name: str) -> list[object]:
        value = self._value(name, [])
        if not isinstance(value, list):
            raise self.error(name, f"must be an array, found {value!r}")
        return value

    def inner(self, name: str) -> ConfigJson:
        """The object `name`; an empty one if it is absent."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.error(name, f"must be an object, found {value!r}")
        return ConfigJson(value, f"{self.source}: {name}")

    def error(self, name: str, problem: str) -> ValueError:
        return ValueError(f"{self.source}: {name} {problem}")

    def _value(self, name: str, default: object) -> object:
        value = self._fields.get(name)
        if value is not None:
            return value
        if default is None:
            raise self.error(name, "is missing")
        return default


def read_json_object(path: Path) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        ValueError: the file is absent or holds no JSON object; names it.
    """
    try:
        fields = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name} in {path.parent}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return fields
