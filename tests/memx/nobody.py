"""A user whom permissions hold for, whoever runs the tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["nobody"]

_NOBODY = 65534


@contextmanager
def nobody() -> Generator[None]:
    """Be somebody else than root meanwhile, by the effective user id; who is not root stays who it is."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)
