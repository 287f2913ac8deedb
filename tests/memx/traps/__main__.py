"""`python -m tests.memx.traps [word]`: take each guard away, and see exactly the tests fail that need it.

Works on a copy of the package in a temporary folder. With a word, only guards whose trap has it are tried.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from .guards import GUARDS, Guard

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[3]

PARTS: Final = ("actors", "models", "runtime", "src", "tests", "transports", "typings", "pyproject.toml")
"""What the tests need of the project; `typings` has links under which the copy is imported."""

OPTIONS: Final = (
    "-q",
    "--tb=no",
    "--timeout=30",
    "--timeout-method=signal",
    *("-p", "no:cacheprovider"),
    *("-p", "no:unraisableexception"),  # what a test that fails leaves behind is told of in any later one
)

SUMMARY: Final = re.compile(r"^(?:FAILED|ERROR) tests/memx/traps/([^\[\s]+)", re.MULTILINE)

CHOSEN: Final = ("tests/memx/traps", "--ignore=tests/memx/traps/test_guards.py", "-k", "not trio")
"""All tests but that which says that each guard is there; on one event loop, for the guards know of none."""


def main(word: str = "") -> int:
    """Try the guards; print a line for each, and return how many are not what they are said to be."""
    wrong = 0
    with TemporaryDirectory() as folder:
        root = Path(folder)
        _copy(root)
        for guard in (guard for guard in GUARDS if word in guard.trap):
            difference = failures(root, guard) ^ set(guard.tests)
            wrong += bool(difference)
            print("BAD " if difference else "ok  ", guard.file, "|", guard.trap, flush=True)  # noqa: T201
            for test in sorted(difference):
                print("       ", "passes:" if test in guard.tests else "fails too:", test, flush=True)  # noqa: T201
    return wrong


def failures(root: Path, guard: Guard) -> set[str]:
    """Return the tests of this folder that fail without a guard, as `file.py::name`."""
    file = root / guard.file
    source = file.read_text()
    file.write_text(source.replace(guard.text, guard.instead))
    try:
        return set(SUMMARY.findall(_tested(root)))
    finally:
        file.write_text(source)


def _copy(root: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, root / part, symlinks=True, ignore=ignore)
        else:
            shutil.copy(ROOT / part, root / part)


def _tested(root: Path) -> str:
    """Run the tests on a copy; return what pytest prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *CHOSEN],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "typings"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1}:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
