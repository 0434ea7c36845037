"""A directory of safetensors files, read one tensor at a time through memory maps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.config_json import read_json_object

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...


class _TensorFile(Protocol):
    """What we use of safetensors' `safe_open`, which has no types of its own."""

    def keys(self) -> Iterable[str]: ...
    def get_slice(self, name: str) -> _Slice: ...
    def get_tensor(self, name: str) -> Tensor: ...


class Checkpoint:
    """The tensors of one checkpoint.

    Raises:
        ValueError: no safetensors in the directory, or an index that cannot be read or names a file that is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_of = _locate_tensors(path)
        self._open_files: dict[str, _TensorFile] = {}
        self._read: set[str] = set()

    @property
    def unread(self) -> list[str]:
        """Names of the tensors that nobody has read yet."""
        return sorted(self._file_of.keys() - self._read)

    def read_into(self, name: str, destination: Tensor) -> None:
        """Copies tensor `name` into `destination`, converting dtype and device on the way.

        Raises:
            ValueError: the tensor is missing, has another shape, or its file is damaged; names tensor and file.
        """
        if name not in self._file_of:
            raise ValueError(f"{self._path} has no tensor {name!r}")
        filename = self._file_of[name]
        try:
            stored = self._open(filename)
            shape = tuple(stored.get_slice(name).get_shape())
            if shape != tuple(destination.shape):
                where = f"{name!r} in {self._path / filename}"
                raise ValueError(f"{where} has shape {list(shape)}, config.json asks for {list(destination.shape)}")
            destination.copy_(stored.get_tensor(name))
        except SafetensorError as error:
            raise ValueError(f"cannot read {name!r} from {self._path / filename}: {error}") from None
        self._read.add(name)

    def _open(self, filename: str) -> _TensorFile:
        if filename not in self._open_files:
            self._open_files[filename] = _open_file(self._path / filename)
        return self._open_files[filename]


def _locate_tensors(path: Path) -> dict[str, str]:
    """Which file of the directory holds each tensor."""
    if (path / _INDEX_FILE).is_file():
        return _read_index(path)
    if (path / _SINGLE_FILE).is_file():
        return dict.fromkeys(_open_file(path / _SINGLE_FILE).keys(), _SINGLE_FILE)
    raise ValueError(f"no safetensors in {path}: expected {_SINGLE_FILE} or {_INDEX_FILE}")


def _read_index(path: Path) -> dict[str, str]:
    index = path / _INDEX_FILE
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(filename, str) for filename in weight_map.values()):
        raise ValueError(f"{index} has no weight_map from tensor names to files")
    for filename in sorted(set(weight_map.values())):
        if not (path / filename).is_file():
            raise ValueError(f"{index} names {filename}, which is not in {path}")
    return weight_map


def _open_file(path: Path) -> _TensorFile:
    try:
        opened: _TensorFile = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file (truncated download?): {error}") from None
    return opened
