"""Generic devices of one kind, as comparisons of schedulers have them."""

from __future__ import annotations

from typing import Final

from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

from .trace import GroupLoad

__all__ = ["MAX_GROUPS", "MAX_SWAP", "MAX_WINDOW", "generic_groups"]

MAX_GROUPS: Final = 64
"""Groups of one trace."""

MAX_SWAP: Final = 3600.0
"""Seconds that a swap may take."""

MAX_WINDOW: Final = 4096
"""Frames that a generic device may have started and not completed."""


def generic_groups(count: int, *, swap: float, window: int = 1) -> tuple[GroupLoad, ...]:
    """Return generic devices of one kind, told apart by their index.

    Args:
        count: how many.
        swap: seconds to make a model resident.
        window: frames that may be started and not completed, on each.

    Raises:
        ConfigError: one of them is out of its range.
    """
    if not is_a(count, int) or not 1 <= count <= MAX_GROUPS:
        raise ConfigError(f"groups {count!r} came, a whole number from 1 to {MAX_GROUPS} is wanted")
    if not is_a(window, int) or not 1 <= window <= MAX_WINDOW:
        raise ConfigError(f"window {window!r} came, a whole number from 1 to {MAX_WINDOW} is wanted")
    if not 0 <= swap <= MAX_SWAP:
        raise ConfigError(f"swap {swap!r} came, seconds from 0 to {MAX_SWAP:g} are wanted")
    parameters = f"window={window}&swap_ms={swap * 1e3:.9g}"
    return tuple(GroupLoad(f"sim://{index}?{parameters}") for index in range(count))
