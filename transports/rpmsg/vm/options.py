"""Arguments of the constructor, which anybody may write: checked, and named where they are at fault."""

from __future__ import annotations

import math
import operator
import os
from pathlib import Path
from typing import SupportsIndex, cast

from .connect import Source
from .errors import OptionError

__all__ = ["bytes_option", "path_option", "seconds_option", "source_option"]


def path_option(name: str, value: object) -> Path:
    """Return a path.

    Raises:
        OptionError: it is none; names the argument.
    """
    if not isinstance(value, str | os.PathLike):
        raise OptionError(f"{name} is {value!r}: no path")
    return Path(cast("str | os.PathLike[str]", value))


def bytes_option(name: str, value: object) -> int | None:
    """Return a number of bytes, at least 1, or None.

    Raises:
        OptionError: it is none; names the argument.
    """
    if value is None:
        return None
    try:
        size = operator.index(cast("SupportsIndex", value))
    except TypeError as error:
        raise OptionError(f"{name} is {value!r}: no number of bytes") from error
    if size < 1:
        raise OptionError(f"{name} is {size}: at least 1 byte is needed")
    return size


def seconds_option(name: str, value: object) -> float:
    """Return a number of seconds, more than 0 and finite.

    Raises:
        OptionError: it is none; names the argument.
    """
    try:
        seconds = math.nan if isinstance(value, str) else float(cast("float", value))
    except (TypeError, ValueError, OverflowError) as error:
        raise OptionError(f"{name} is {value!r}: no number of seconds") from error
    if not 0 < seconds < math.inf:
        raise OptionError(f"{name} is {value!r}: a run takes more than 0 seconds, and ends")
    return seconds


def source_option(address: object) -> Source | None:
    """Return where the DSP is, or None.

    Raises:
        OptionError: it is none; names the argument.
    """
    if address is None or isinstance(address, str) or callable(address):
        return cast("Source | None", address)
    raise OptionError(f"address is {address!r}: neither an address nor what gives a DSP")
