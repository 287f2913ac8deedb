"""Every guard is where it is said to be, every trap has its test, and the page of traps tells both."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .guards import GUARDS, Guard

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGE = (ROOT / "docs" / "traps.md").read_text()
ELSEWHERE = re.compile(r"^\|.*\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\) \|$", re.MULTILINE)


def _place(guard: Guard) -> str:
    """Return the function that a guard stands in, as `Class.function`; or nothing, outside of all."""
    source = (ROOT / guard.file).read_text()
    line = source[: source.index(guard.text)].count("\n") + 1
    names: list[str] = []
    nodes: list[ast.stmt] = ast.parse(source).body
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.lineno <= line <= (node.end_lineno or line)
        ):
            names.append(node.name)
            nodes = list(node.body)
    return ".".join(names)


def row(guard: Guard) -> str:
    """Return a guard's row of the page."""
    place = f"`{found}` in " if (found := _place(guard)) else ""
    tests = ", ".join(
        f"[{name}](../tests/memx/traps/{file})" for file, name in (test.split("::") for test in guard.tests)
    )
    return f"| {guard.trap} | {place}[{guard.file}](../{guard.file}) | {tests} | {guard.who} |"


def _defined(file: Path) -> set[str]:
    """Return the tests of a file."""
    body = ast.parse(file.read_text()).body
    return {
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.trap)
def test_a_guard_stands_in_its_file_once(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text().count(guard.text) == 1
    assert guard.instead != guard.text


def test_every_test_is_that_of_a_guard() -> None:
    tests = {f"{file.name}::{name}" for file in HERE.glob("test_*.py") for name in _defined(file)}
    own = {test for test in tests if test.startswith(f"{Path(__file__).name}::")}
    assert tests - own == {test for guard in GUARDS for test in guard.tests}


def test_the_page_has_a_row_for_every_guard() -> None:
    rows = [line for line in PAGE.splitlines() if "(../tests/memx/traps/" in line]
    assert rows == [row(guard) for guard in GUARDS]


def test_the_tests_of_other_folders_are_there() -> None:
    found = [(name, file) for name, file in ELSEWHERE.findall(PAGE) if "/traps/" not in file]
    assert len(found) > 5
    for name, file in found:
        assert name in _defined(ROOT / file), name
