"""Builds `stub.c`: a libmemx that notes every call and answers what it is told."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

__all__ = ["Stub"]

SOURCE = Path(__file__).with_name("stub.c")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")


@final
class Stub:
    """A stub library in a folder of its own; what it is told in one test is unknown to another.

    Args:
        folder: made if it is not there; the library is `libmemx.so` in it, or `name`.
        without: functions that it does not export; `LIB_VER` too may be left out.
    """

    def __init__(self, folder: Path, *, without: Collection[str] = (), name: str = "libmemx.so") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / name
        library.write_bytes(_without(without))
        self.path = str(library)
        self._calls = folder / f"{name}.calls"
        self._answers = folder / f"{name}.answers"
        self._orders: dict[str, str] = {}
        self._prints: list[str] = []

    def answer(self, function: str, status: int, *values: float) -> None:
        """Let a function return `status` and write `values` through its pointers."""
        self._tell(function, " ".join(map(repr, (int(status), *map(float, values)))))

    def hang(self, function: str) -> None:
        """Let a function never return."""
        self._tell(function, "hang")

    def crash(self, function: str) -> None:
        """Let a function end the process by SIGSEGV."""
        self._tell(function, "crash")

    def print(self, function: str) -> None:
        """Let a function print `libmemx speaks` on standard output, whatever else it does."""
        self._prints.append(function)
        self._write()

    def calls(self) -> list[str]:
        """Return the calls since the last look, each as its name and its arguments; the loading too."""
        lines = self.peek()
        self._calls.write_text("")
        return lines

    def peek(self) -> list[str]:
        """Return the calls since `calls` was last asked, and leave them there."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def _tell(self, function: str, order: str) -> None:
        self._orders[function] = order
        self._write()

    def _write(self) -> None:
        lines = [f"{name} print\n" for name in self._prints]
        lines += [f"{name} {order}\n" for name, order in self._orders.items()]
        fresh = self._answers.with_suffix(".new")
        fresh.write_text("".join(lines))
        fresh.replace(self._answers)  # at once: another thread may be in a call


@cache
def _compiled() -> bytes:
    with TemporaryDirectory() as folder:
        library = Path(folder) / "libmemx.so"
        subprocess.run(["cc", "-shared", "-fPIC", *WARNINGS, SOURCE, "-o", library], check=True)
        return library.read_bytes()


def _without(functions: Collection[str]) -> bytes:
    """Leave functions out by giving them other names: quicker than a compiler, and as good for a loader."""
    library = _compiled()
    for name in map(str.encode, functions):
        library = library.replace(b"\0" + name + b"\0", b"\0" + name.swapcase() + b"\0")
    return library
