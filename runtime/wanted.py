"""What a key of a configuration takes, in words."""

from __future__ import annotations

import datetime as dt
from typing import Final

from msgspec import inspect

__all__ = ["came", "plain", "wanted"]

_LONGEST: Final = 60  # characters of a value that are shown

_NAMES: Final[dict[type[inspect.Type], tuple[str, str]]] = {
    inspect.IntType: ("a whole number", "whole numbers"),
    inspect.FloatType: ("a number", "numbers"),
    inspect.StrType: ("a text", "texts"),
    inspect.BoolType: ("true or false", "true or false"),
    inspect.StructType: ("a table", "tables"),
}


def came(value: object) -> str:
    """Say a value as it stands in the file; long ones are cut."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "a table"
        case list():
            return "a list" if value else "an empty list"
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            text = repr(value)
            return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def plain(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """Return the types of which a key takes any one; that a key may be left out is not among them."""
    if not isinstance(kind, inspect.UnionType):
        return (kind,)
    return tuple(each for each in kind.types if not isinstance(each, inspect.NoneType))


def wanted(kind: inspect.Type) -> str:
    """Say what a type takes: `a whole number from 1 to 64`, `one of refuse, wait`, `a list of texts`."""
    return " or ".join(map(_wanted, plain(kind)))


def _wanted(kind: inspect.Type) -> str:
    match kind:
        case inspect.EnumType():
            return f"one of {', '.join(str(member.value) for member in kind.cls)}"
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, kind.values))}"
        case inspect.ListType():
            number = _number(kind.min_length, kind.max_length)
            return f"a list of {number}{' or '.join(_NAMES[type(each)][1] for each in plain(kind.item_type))}"
        case inspect.StrType():
            number = _number(kind.min_length, kind.max_length)
            return f"a text of {number}characters" if number else "a text"
        case inspect.IntType() | inspect.FloatType():
            return _NAMES[type(kind)][0] + _range(kind)
        case _:
            return _NAMES[type(kind)][0]


def _number(least: int | None, most: int | None) -> str:
    if least is None:
        return "" if most is None else f"at most {most} "
    return f"at least {least} " if most is None else f"{least} to {most} "


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:g} to {kind.le:.15g}"
    words = (("above", kind.gt), ("at least", kind.ge), ("below", kind.lt), ("at most", kind.le))
    return ",".join(f" {word} {bound:.15g}" for word, bound in words if bound is not None)
