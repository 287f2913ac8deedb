"""The tables of the documentation: every function of the vendor's page, and every mistake, with its test."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from repertory.transports.xm_npu.cl.signatures import SIGNATURES

TESTS = Path(__file__).parent
DOCUMENT = TESTS.parents[2] / "docs" / "xm_npu.md"
FUNCTIONS = "## The page, function by function"
MISTAKES = "## What goes wrong without it"

ON_THE_PAGE = {
    "xmedia_sys_init",
    "xmedia_cl_init",
    "xmedia_cl_get_device_ids",
    "xmedia_cl_create_context",
    "xmedia_cl_graph_querysize_from_file",
    "xmedia_mmz_alloc",
    "xmedia_mmz_map",
    "xmedia_cl_graph_loadmodel_from_file_withmem",
    "xmedia_cl_graph_loadmodel_from_file",
    "xmedia_cl_graph_get_input",
    "xmedia_cl_graph_get_output",
    "xmedia_cl_graph_set_inout",
    "xmedia_cl_graph_process",
    "xmedia_cl_graph_unload",
    "xmedia_cl_release_context",
    "xmedia_cl_release_device_ids",
    "xmedia_cl_uninit",
    "xmedia_sys_exit",
}
NO_FUNCTIONS_OF_THE_LIBRARY = {
    "XMEDIA_API_SYS_MmzAlloc_Cached",
    "XMEDIA_API_SYS_MmzFlushCache",
    "XMEDIA_API_SYS_MmzFree",
    "malloc_inout_tensor_mem",
}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    section = DOCUMENT.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@cache
def known() -> frozenset[str]:
    """Return the names of all tests, with their files."""
    return frozenset(
        f"{file.name}::{name}"
        for file in TESTS.parents[1].rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    )


def named(cells: list[str]) -> set[str]:
    return set(re.findall(r"test_\w+\.py::test_\w+", " ".join(cells)))


def test_every_function_of_the_page_has_a_row_and_a_test_that_exists() -> None:
    table = {row[0].strip("`"): row for row in rows(FUNCTIONS)}
    assert table.keys() >= ON_THE_PAGE | NO_FUNCTIONS_OF_THE_LIBRARY
    assert {name: named(row) - known() for name, row in table.items() if not named(row) <= known()} == {}
    assert [name for name, row in table.items() if not named(row)] == []


def test_every_function_that_is_called_has_a_row() -> None:
    assert {row[0].strip("`") for row in rows(FUNCTIONS)} - NO_FUNCTIONS_OF_THE_LIBRARY == set(SIGNATURES)


def test_every_mistake_is_listed_with_tests_that_exist() -> None:
    table = rows(MISTAKES)
    assert [row[0] for row in table] == [str(number) for number in range(1, 15)]
    assert [row[0] for row in table if not named(row) <= known()] == []
