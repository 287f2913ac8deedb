"""What README and the pages of docs/ say is true: links, commands, code, and every limit."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from repertory.models.pack import pack_memx
from repertory.runtime import config
from repertory.runtime.demo import photos
from repertory.runtime.plan.csv_trace import read_csv
from repertory.runtime.plan.report import Report
from repertory.runtime.plan.toml_trace import read_toml
from repertory.runtime.policies.hailort import QUEUE, HailoRt
from repertory.runtime.policies.mxa_manager import MxaManager
from repertory.runtime.policies.named import POLICIES
from repertory.runtime.policies.rotation import Rotation
from repertory.runtime.policies.swap_aware import SwapAware
from repertory.runtime.statistics import Decided, Event, GroupStatistics, ModelStatistics
from repertory.transports.families import schemes

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return what can be linked to in a page."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def run(source: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        assert found.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_test_command_is_one_line() -> None:
    text = (ROOT / "README.md").read_text()
    command = re.findall(r"^<!-- test-command -->\n```sh\n(.*)\n```$", text, re.MULTILINE)
    assert command == [
        'python3 -m venv .venv && .venv/bin/pip install -q -e ".[test]" && .venv/bin/pytest -n 2'
    ]


def test_the_application_of_the_readme(tmp_path: Path) -> None:
    (application,) = blocks(ROOT / "README.md", "python")
    (tmp_path / "rnet.dfp").write_bytes(pack_memx([("rnet", photos.network("rnet"))]))
    printed = run(application, tmp_path).splitlines()
    assert printed[0] == "{'dense_2': (1, 4), 'softmax_1': (1, 2)}"
    assert any(line.startswith("bind rnet ") for line in printed)


def test_the_configuration_of_the_readme(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "README.md", "toml")
    (tmp_path / "board.toml").write_text(text)
    (model,) = config.read_config(tmp_path / "board.toml").model
    assert model.path == str(tmp_path / "rnet.dfp")


def test_the_device_of_ones_own(tmp_path: Path) -> None:
    (source,) = blocks(ROOT / "docs" / "devices.md", "python")
    answer, checks = run(source, tmp_path).splitlines()
    assert answer == "[4. 4. 4. 4.]"
    assert checks.endswith("checks passed")


def test_every_address_is_described() -> None:
    heads = " ".join(re.findall(r"^### (.*)$", (ROOT / "docs" / "devices.md").read_text(), re.MULTILINE))
    assert set(re.findall(r"`([\w+-]+)://", heads)) == set(schemes())


def test_every_key_of_the_configuration_is_named() -> None:
    text = (ROOT / "docs" / "limits.md").read_text()
    keys = text[text.index("The keys of a configuration") :]
    for kind in (config.GroupConfig, config.ModelConfig):
        assert all(f"`{field}`" in keys for field in kind.__struct_fields__)
    ours = set(config.Config.__struct_fields__) - {"group", "model"}
    assert all(f"`{field}`" in keys for field in ours)


def test_every_number_of_statistics_is_named() -> None:
    text = (ROOT / "docs" / "statistics.md").read_text()
    for kind in (ModelStatistics, GroupStatistics, Decided, Event):
        assert [field for field in kind.__struct_fields__ if f"`{field}`" not in text] == []


def test_every_field_of_a_plan_is_named() -> None:
    text = (ROOT / "docs" / "plan.md").read_text()
    fields = text[text.index("## JSON") :]
    assert [field for field in Report.__struct_fields__ if f"`{field}`" not in fields] == []


def test_every_policy_and_its_parameters_are_named() -> None:
    text = (ROOT / "docs" / "scheduler.md").read_text()
    assert [name for name in POLICIES if f"| `{name}` |" not in text] == []
    for kind in (SwapAware, Rotation, HailoRt, MxaManager):
        for parameter in inspect.signature(kind).parameters.values():
            if parameter.name != "models":
                default = QUEUE if parameter.name == "burst" else parameter.default
                assert _row(text, parameter.name) == _told(default), parameter


def _row(text: str, parameter: str) -> str:
    """Return the default that a table tells of a parameter."""
    (row,) = re.findall(rf"^\|.*\| ?`{parameter}` \|.*$|^\| `{parameter}` \|.*$", text, re.MULTILINE)
    return str(row.split("|")[-3]).strip()


def _told(value: object) -> str:
    return str(value).lower().removesuffix(".0")


def test_the_plan_of_the_page(tmp_path: Path) -> None:
    shop, described = blocks(ROOT / "docs" / "plan.md", "toml")
    for number, text in enumerate((shop, described)):
        (tmp_path / f"{number}.toml").write_text(text)
    assert [model.name for model in read_toml(tmp_path / "0.toml").models] == [
        "entrance",
        "till",
        "yard",
        "search",
    ]
    assert len(read_toml(tmp_path / "1.toml").groups) == 2
    (arrivals,) = (text for text in blocks(ROOT / "docs" / "plan.md", "text") if text.startswith("# trace="))
    (tmp_path / "lobby.csv").write_text(arrivals)
    assert read_csv(tmp_path / "lobby.csv").arrivals[0].deadline == 0.066
    (source,) = blocks(ROOT / "docs" / "plan.md", "python")
    assert run(source, tmp_path) == "1.0\n"


def limits() -> list[tuple[str, str, str]]:
    """Return name, value and place of the table's rows that name a place in the code."""
    rows = re.findall(r"^\|(.*)\|$", (ROOT / "docs" / "limits.md").read_text(), re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return [(row[0], row[1], row[4].strip("`")) for row in cells if len(row) == 5 and row[4].startswith("`")]


@pytest.mark.parametrize(("name", "value", "place"), limits(), ids=lambda text: text)
def test_every_limit_is_that_of_the_code(name: str, value: str, place: str) -> None:
    found = looked_up(place)
    assert str(found.value if isinstance(found, Enum) else found).removesuffix(".0") == value, name


def looked_up(place: str) -> Any:
    """Find `module.NAME`, or the default of `module.Class.field`."""
    *path, name = f"repertory.{place}".split(".")
    if not path[-1][0].isupper():
        return getattr(import_module(".".join(path)), name)
    kind = getattr(import_module(".".join(path[:-1])), path[-1])
    if dataclasses.is_dataclass(kind):
        return next(field.default for field in dataclasses.fields(kind) if field.name == name)
    if issubclass(kind, msgspec.Struct):
        return next(field.default for field in msgspec.structs.fields(kind) if field.name == name)
    return inspect.signature(kind).parameters[name].default


def test_the_table_of_limits_is_read() -> None:
    assert len(limits()) > 30
