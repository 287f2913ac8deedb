"""TOML that users write, read into structs: what is wrong is told by table, key, value and what is wanted."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

from .wanted import came, plain, wanted

__all__ = ["decoded"]

T = TypeVar("T")

_Path: TypeAlias = list[str | int]

_AT: Final = re.compile(r" - at `\$([^`]*)`$")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_LABELS: Final = ("name", "path", "address")


def decoded(data: bytes, kind: type[T]) -> T:
    """Read a TOML document into a msgspec struct.

    Raises:
        ConfigError: it is no TOML; or a key is missing, unknown, or has a value that it does not take:
            `model 2 (camera): overflow 'drop' came, one of refuse, wait, drop_oldest is wanted`.
    """
    try:
        document = msgspec.toml.decode(data)
    except RecursionError as error:
        raise ConfigError("lists or tables are nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"this is no TOML: {error}") from error
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(_trouble(document, kind, _path(str(error)))) from error


def _path(text: str) -> _Path:
    """Return the keys and indices that lead to what msgspec complains of."""
    found = _AT.search(text)
    steps = _STEP.finditer(found[1]) if found else ()
    return [step[1] or int(step[2]) for step in steps]


def _trouble(document: Any, kind: type, path: _Path) -> str:
    """Say what is wrong at the end of a path."""
    value, type_ = document, inspect.type_info(kind)
    words: list[str] = []
    for step in path:
        value, type_ = value[step], _inner(type_, step)
        if isinstance(step, str):
            words.append(step)
        elif is_a(value, dict):
            words[-1] += f" {step + 1}{_label(value)}"
        else:
            words[-1] = f"item {step + 1} of {words[-1]}"
    tables = [each for each in plain(type_) if isinstance(each, inspect.StructType)]
    if tables and is_a(value, dict):
        return ": ".join([*words, _keys(value, tables[0])])
    key = f"{words.pop()} " if path and isinstance(path[-1], str) else ""
    return ": ".join([*words, f"{key}{came(value)} came, {wanted(type_)} is wanted"])


def _inner(kind: inspect.Type, step: str | int) -> inspect.Type:
    """Return the type of a key of a table, or of an item of a list."""
    for each in plain(kind):
        if isinstance(each, inspect.StructType) and isinstance(step, str):
            return next(field.type for field in each.fields if field.encode_name == step)
        if isinstance(each, inspect.ListType) and isinstance(step, int):
            return each.item_type
    raise AssertionError(f"{step!r} leads nowhere in {kind}")


def _label(table: dict[str, object]) -> str:
    """Return by what a user tells a table from the others of its kind."""
    labels = [table[key] for key in _LABELS if isinstance(table.get(key), str)]
    return f" ({labels[0]})" if labels else ""


def _keys(table: dict[str, object], kind: inspect.StructType) -> str:
    """Say which key of a table is unknown or missing."""
    names = [field.encode_name for field in kind.fields]
    for key in table:
        if key not in names:
            return f"there is no key {key!r}; there are {', '.join(names)}"
    field = next(field for field in kind.fields if field.required and field.encode_name not in table)
    return f"[[{field.encode_name}]] is missing" if _tables(field.type) else f"{field.encode_name} is missing"


def _tables(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.ListType) and isinstance(kind.item_type, inspect.StructType)
