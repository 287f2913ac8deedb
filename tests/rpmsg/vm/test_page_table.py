"""The vendor's page of the class: every Python function of it has a row in docs/c7x_vm.md, and a test."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from repertory import C7xVirtualMachine, c7x

from . import test_lifetimes, test_page_examples

PAGE = (
    "C7xVirtualMachine",
    'vm["main"]',
    "nd.array",
    "numpy",
    "close",
    "with",
    "run_nocopy",
    "create_input",
    "copyfrom",
    "last_cycles",
    "is_loaded",
)
BEYOND_THE_PAGE = {"copied_inputs", "staged_inputs"}


class Row(NamedTuple):
    """One row of a table."""

    what: str
    file: str
    test: str


def rows(table: str) -> list[Row]:
    """Return the rows of a table of docs/c7x_vm.md, by its first heading."""
    text = (Path(__file__).parents[3] / "docs" / "c7x_vm.md").read_text()
    body = text.split(f"| {table} | file | test |\n", 1)[1].split("\n\n", 1)[0]
    return [Row(*row) for row in re.findall(r"^\| (.+?) \| `(\w+)` \| `(\w+)` \|$", body, re.MULTILINE)]


def test_the_table_has_every_function_once() -> None:
    assert [row.what.strip("`") for row in rows("Python")] == list(PAGE)
    assert all(row.file == "test_page_examples" for row in rows("Python"))


def test_nothing_public_is_left_out() -> None:
    vm = C7xVirtualMachine("lib0.out")
    public = {name for name in {*vars(C7xVirtualMachine), *vars(vm)} if not name.startswith("_")}
    assert public == ({*PAGE} & public) | BEYOND_THE_PAGE
    assert c7x.C7xVirtualMachine is C7xVirtualMachine
    assert callable(c7x.nd.array)


def test_the_constructor_is_the_vendors_and_more_by_keyword() -> None:
    parameters = inspect.signature(C7xVirtualMachine).parameters
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    positional = [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == ["module_path", "so_path"]
    assert {kinds[name] for name in kinds.keys() - {*positional}} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters["so_path"].default == "libc7x_arm_runtime.so"


@pytest.mark.parametrize("row", rows("Python"), ids=lambda row: row.what)
def test_a_row_names_a_test_that_calls_its_function(row: Row) -> None:
    assert row.what.strip("`") in called(inspect.getsource(test_page_examples), row.test)


def test_the_four_lifetimes_have_tests() -> None:
    found = rows("lifetime")
    assert len(found) == 4
    assert all(hasattr(test_lifetimes, row.test) and row.file == "test_lifetimes" for row in found)


def called(source: str, test: str) -> set[str]:
    """Return what a test uses, as the table writes it."""
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    nodes = list(ast.walk(functions[test]))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {ast.unparse(node).replace("'", '"') for node in nodes if isinstance(node, ast.Subscript)}
    used |= {"nd." + name for name in ("array",) if name in used}
    return used | ({"with"} if any(isinstance(node, ast.With) for node in nodes) else set())
