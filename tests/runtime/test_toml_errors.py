"""What is wrong in a TOML file is told in the user's words: file, table, key, what came, what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from repertory.models.errors import ConfigError
from repertory.runtime import config
from repertory.runtime.plan import toml_trace

Reader = Callable[[Path], object]

BOARD = "[[group]]\naddress = 'sim://'\n[[model]]\nname = 'cam'\npath = 'a.json'\n"
LOAD = "groups = 1\nswap_ms = 1\n[[model]]\nname = 'cam'\nservice_ms = 1\n"
MODEL = {"name": "'cam'", "path": "'a.json'"}
LOADED = {"name": "'cam'", "service_ms": "1"}
VALUES = ("'odd'", "true", "1e300", "[{}]", "[2.5]", "1979-05-27")
RAW = ("Expected `", "Invalid enum", "Object ", "$.", "`array", "`object")
"""What msgspec says."""


def _said(read: Reader, path: Path, text: str) -> str:
    """Return what a reader says of a file, without the file's name; nothing, where it takes it."""
    path.write_text(text)
    try:
        read(path)
    except ConfigError as error:
        said = str(error)
        assert said.startswith(f"{path}: "), said
        return said.removeprefix(f"{path}: ")
    return ""


def _document(tables: dict[str, dict[str, str]], kind: str | None, key: str, value: str) -> str:
    """Return a file with a key in its table of this kind, or at its top."""
    changed = {name: table | ({key: value} if name == kind else {}) for name, table in tables.items()}
    inline = {name: ", ".join(f"{k} = {v}" for k, v in table.items()) for name, table in changed.items()}
    lines = [f"{key} = {value}"] if kind is None else []
    return "\n".join([*lines, *(f"{name} = [{{{keys}}}]" for name, keys in inline.items() if name != key)])


@pytest.mark.parametrize(
    ("read", "structs", "model"),
    [
        (config.read_config, (config.Config, config.GroupConfig, config.ModelConfig), MODEL),
        (
            toml_trace.read_toml,
            [vars(toml_trace)[name] for name in ("_Description", "_Group", "_Model")],
            LOADED,
        ),
    ],
)
def test_no_value_of_another_kind_is_told_in_the_words_of_a_library(
    read: Reader, structs: Sequence[type[msgspec.Struct]], model: dict[str, str], tmp_path: Path
) -> None:
    tables = {"group": {"address": "'sim://'"}, "model": model}
    keys = [
        (kind, key)
        for kind, struct in zip((None, *tables), structs, strict=True)
        for key in struct.__struct_fields__
    ]
    refused = 0
    for kind, key in keys:
        for value in VALUES:
            said = _said(read, tmp_path / "a.toml", _document(tables, kind, key, value))
            assert not any(raw in said for raw in RAW), said
            refused += f"{key} " in said and "is wanted" in said
    assert refused > 70


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (
            config.read_config,
            BOARD + "overflow = 'drop'",
            "model 1 (cam): overflow 'drop' came, one of refuse, wait, drop_oldest is wanted",
        ),
        (config.read_config, BOARD + "overflow = 3", "model 1 (cam): overflow 3 came, one of refuse, wait, "),
        (config.read_config, BOARD + "outputs = 'f'", "outputs 'f' came, one of float32, native is wanted"),
        (config.read_config, BOARD + "warm = 1", "model 1 (cam): warm 1 came, true or false is wanted"),
        (config.read_config, BOARD + "queue = true", "queue true came, a whole number is wanted"),
        (config.read_config, BOARD + "groups = 'sim://'", "groups 'sim://' came, a list of texts is wanted"),
        (
            config.read_config,
            BOARD + "groups = ['a', 3]",
            "(cam): item 2 of groups: 3 came, a text is wanted",
        ),
        (config.read_config, BOARD + "twin = 1979-05-27", "twin 1979-05-27 came, a text is wanted"),
        (config.read_config, BOARD + f"queue = '{'q' * 500}'", f"queue '{'q' * 59}... came"),
        (config.read_config, BOARD + "quueue = 1", "(cam): there is no key 'quueue'; there are path, name, "),
        (config.read_config, "'a` - at `$.group`' = 1\n" + BOARD, "there is no key 'a` - at `$.group`'; "),
        (config.read_config, BOARD + "[[model]]\nname = 'b'", "model 2 (b): path is missing"),
        (config.read_config, "queue = 1", "[[group]] is missing"),
        (config.read_config, "group = 3", "group 3 came, a list of tables is wanted"),
        (config.read_config, "group = [3]", "item 1 of group: 3 came, a table is wanted"),
        (config.read_config, "[group]\naddress = 'sim://'", "group a table came, a list of tables is wanted"),
        (config.read_config, "queue = ", "this is no TOML: "),
        (config.read_config, "x = " + "[" * 5000, "nested too deeply"),
        (
            toml_trace.read_toml,
            LOAD + "fps = 0",
            "model 1 (cam): fps 0 came, a number above 0, at most 1000000",
        ),
        (toml_trace.read_toml, LOAD + "dropped = 1.5", "dropped 1.5 came, a number at least 0, below 1 is"),
        (toml_trace.read_toml, LOAD + "clients = 0", "clients 0 came, a whole number from 1 to 10000 is"),
        (toml_trace.read_toml, "seed = -1\n" + LOAD, "seed -1 came, a whole number at least 0 is wanted"),
        (
            toml_trace.read_toml,
            LOAD + "groups = [1.5]",
            "item 1 of groups: 1.5 came, a whole number or a text",
        ),
        (
            toml_trace.read_toml,
            LOAD + "groups = []",
            "an empty list came, a list of at least 1 whole numbers or ",
        ),
        (
            toml_trace.read_toml,
            LOAD + "[[model]]\nname = ''",
            "name '' came, a text of 1 to 256 characters is",
        ),
        (
            toml_trace.read_toml,
            "seconds = nan\n" + LOAD,
            "seconds nan came, a number above 0, at most 1000000000",
        ),
    ],
)
def test_what_is_said(read: Reader, text: str, said: str, tmp_path: Path) -> None:
    assert said in _said(read, tmp_path / "a.toml", text)
