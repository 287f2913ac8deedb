"""Bounds on what reading a hostile file may cost."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["MEMORY", "little_memory"]

MEMORY = 128 << 20


@contextmanager
def little_memory() -> Generator[None]:
    """Let no more than `MEMORY` bytes be taken beyond what the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
