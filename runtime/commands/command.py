"""What every command is made of: arguments in, an exit code out, facts as text or JSON."""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar

import msgspec

from repertory.models.errors import RepertoryError

__all__ = ["Command", "Step", "one_error", "printed", "progress", "table"]

Step = Callable[[], None]
"""Tells a progress bar that one more piece of the work is done."""


class Command(ABC):
    """One subcommand.

    Attributes:
        name: as it is called.
        summary: one line for the list of commands; the class's docstring is its `--help`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    @abstractmethod
    def run(self, options: argparse.Namespace) -> None:
        """Do the work; a RepertoryError becomes a message and an exit code."""


def printed(facts: object, text: Iterable[str], *, json: bool) -> None:
    """Print facts for a program or for a person."""
    if json:
        print(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
    else:
        for line in text:
            print(line)


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Lay out columns: the first one to the left, numbers to the right."""
    cells = [head, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        first, *others = (
            cell.ljust(widths[0]) if at == 0 else cell.rjust(widths[at]) for at, cell in enumerate(row)
        )
        yield "  ".join((first, *others)).rstrip()


@contextmanager
def progress(what: str, total: int) -> Generator[Step]:
    """Show a bar on a terminal's stderr, where rich is installed; else nothing."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415  (an extra)
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda: bars.advance(bar)


@contextmanager
def one_error() -> Generator[None]:
    """Turn a group of exceptions from concurrent requests into the first that names its fault."""
    try:
        yield
    except BaseExceptionGroup as group:
        named = group.subgroup(RepertoryError)
        if named is None:
            raise
        error: BaseException = named
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from group
