"""Checks of what a typed signature promises and an untyped caller may not keep."""

from __future__ import annotations

__all__ = ["is_a"]


def is_a(value: object, *kinds: type) -> bool:
    """Whether a value is of one of these types, whatever its annotation says."""
    return isinstance(value, kinds)
