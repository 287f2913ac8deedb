"""Options that packing has for every family, as the command line gives them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from repertory.models.errors import ConfigError
from repertory.models.model_file import read_file

__all__ = ["pairs", "read", "refuse_foreign", "seconds", "shapes"]

_OWNERS: Final = {
    "layout": ("memx",),
    "format": ("memx", "xm-npu"),
    "chips": ("memx",),
    "co_map": ("memx",),
    "interval_ms": ("memx",),
    "private_data": ("xm-npu",),
    "row_alignment": ("xm-npu",),
    "work_bytes": ("xm-npu",),
    "reuse": ("xm-npu",),
}
"""Options that not every family has, and who has them."""


_HOUR = 3_600_000  # ms


def refuse_foreign(options: argparse.Namespace, family: str) -> None:
    """Refuse what means nothing to a family.

    Raises:
        ConfigError: names the option and whose it is.
    """
    for name, owners in _OWNERS.items():
        value = getattr(options, name)
        if family not in owners and not (value is None or value is False or value == []):
            option, whose = f"--{name.replace('_', '-')}", " and ".join(owners)
            raise ConfigError(f"{option} is for the family {whose}, {family} has nothing like it")


def read(path: Path) -> bytes:
    """Read a graph."""
    return read_file(path)


def pairs(texts: list[str]) -> list[tuple[str, str]]:
    """Split texts of the form NAME=VALUE."""
    found: list[tuple[str, str]] = []
    for text in texts:
        name, separator, value = text.rpartition("=")
        if not separator or not name:
            raise ConfigError(f"{text!r}: NAME=VALUE is wanted")
        found.append((name, value))
    return found


def shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Read texts of the form NAME=1,H,W,C."""
    return {name: _extents(name, text) for name, text in pairs(texts)}


def _extents(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(extent) for extent in text.split(","))
    except ValueError:
        raise ConfigError(f"--shape {name}={text}: whole numbers with commas are wanted") from None


def seconds(option: str, milliseconds: float | None) -> float | None:
    """Convert a time, if one was given.

    Raises:
        ConfigError: it is negative, more than an hour, or no number; names the option.
    """
    if milliseconds is None:
        return None
    if not 0 <= milliseconds <= _HOUR:
        raise ConfigError(f"{option} {milliseconds:g}: 0 to {_HOUR} ms are possible")
    return milliseconds / 1000
