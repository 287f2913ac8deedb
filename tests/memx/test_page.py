"""The vendor's page of the driver API: every function of it has a row in docs/mxa.md, and a test."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from repertory.transports.memx.library import REQUIRED
from repertory.transports.memx.mxa.module import Mxa

from . import test_page_c, test_page_python
from .page import PROFILES, simulator

C_FUNCTIONS = (
    "memx_lock",
    "memx_trylock",
    "memx_unlock",
    "memx_open",
    "memx_close",
    "memx_reconfigure",
    "memx_config_mpu_group",
    "memx_get_chip_gen",
    "memx_download_model",
    "memx_set_stream_enable",
    "memx_set_stream_disable",
    "memx_get_ifmap_size",
    "memx_get_ofmap_size",
    "memx_stream_ifmap",
    "memx_stream_ofmap",
)

PYTHON_FUNCTIONS = {
    "lock": ["group_id"],
    "unlock": ["group_id"],
    "open": ["model_id", "group_id", "chip_gen"],
    "close": ["model_id"],
    "download": ["model_id", "file_path", "model_idx", "type"],
    "set_stream_enable": ["model_id", "wait"],
    "set_stream_disable": ["model_id", "wait"],
    "stream_ifmap": ["model_id", "flow_id", "ifmap", "timeout"],
    "stream_ofmap": ["model_id", "flow_id", "ofmap", "timeout"],
}

BEYOND_THE_PAGE = (
    "trylock",
    "reconfigure",
    "config_mpu_group",
    "set_ifmap_queue_size",
    "set_ofmap_queue_size",
    "get_ifmap_size",
    "get_ofmap_size",
)


def test_python_names_and_arguments() -> None:
    for name, arguments in PYTHON_FUNCTIONS.items():
        parameters = inspect.signature(getattr(Mxa(), name)).parameters
        assert list(parameters) == arguments
        assert all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters.values())
        defaults = {key: kind.default for key, kind in parameters.items() if kind.default is not kind.empty}
        assert defaults == ({"timeout": 0} if "timeout" in arguments else {})


def test_python_constants() -> None:
    assert Mxa.download_type_wtmem == 1
    assert Mxa.download_type_model == 2
    assert Mxa.download_type_wtmem_and_model == 3
    assert (Mxa.device_cascade, Mxa.device_cascade_plus) == (30, 31)


class Row(NamedTuple):
    """One row of the table."""

    function: str
    strict: str
    compat: str
    test: str


def rows() -> list[Row]:
    """Return the rows of docs/mxa.md that name a function."""
    text = (Path(__file__).parents[2] / "docs" / "mxa.md").read_text()
    found = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| `(\w+)` \|$", text, re.MULTILINE)
    return [Row(*row) for row in found]


def test_the_table_has_every_function_once() -> None:
    wanted = [*C_FUNCTIONS, *PYTHON_FUNCTIONS, *BEYOND_THE_PAGE]
    assert sorted(row.function for row in rows()) == sorted(wanted)
    public = {name for name in vars(Mxa) if not name.startswith("_") and callable(getattr(Mxa, name))}
    assert public == {*PYTHON_FUNCTIONS, *BEYOND_THE_PAGE}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.function)
def test_a_row_names_a_test_that_calls_its_function(row: Row) -> None:
    module = test_page_c if row.function.startswith("memx_") else test_page_python
    assert row.function in called(inspect.getsource(module), row.test)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.function)
def test_a_row_says_what_the_profiles_export(row: Row) -> None:
    for profile, said in zip(PROFILES, (row.strict, row.compat), strict=True):
        there = row.function in REQUIRED | simulator(profile).exports | vars(Mxa).keys()
        assert said.startswith("works" if there else "not exported")


def called(source: str, test: str) -> set[str]:
    """Return the methods that a test calls, by itself and by the functions beside it."""
    body = ast.parse(source).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    nodes = list(ast.walk(functions[test]))
    names = {node.id for node in nodes if isinstance(node, ast.Name)} & functions.keys()
    nodes += [node for name in names for node in ast.walk(functions[name])]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}
