"""The state tables of the library, row by row: each row is a test, against the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from repertory.transports.memx.constants import Status

from .by_text import Bench
from .state_table import CONTEXTS, ENABLED, GROUPS, WRONG_ANSWERS, Row


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def label(case: tuple[Row, str]) -> str:
    row, profile = case
    state = "; ".join(row.state) or "fresh"
    return f"{profile}: {state}: {row.call}"


CASES = [(row, profile) for row in (*GROUPS, *CONTEXTS) for profile in row.profiles]


@pytest.mark.parametrize(("row", "profile"), CASES, ids=map(label, CASES))
def test_row(row: Row, profile: str, folder: Path) -> None:
    bench = Bench(profile, folder)
    for call in row.state:
        bench.call(call)
    assert bench.result(row.call) == row.result
    if row.after == WRONG_ANSWERS:
        right = Bench(profile, folder)
        answers = [answer(each) for each in (bench, right)]
        assert answers[0] != answers[1]
    elif isinstance(row.after, str):
        assert bench.state() == row.after
    elif row.after is not None:
        assert [(call, bench.result(call)) for call, _ in row.after] == row.after


def answer(bench: Bench) -> bytes:
    for call in ENABLED:
        bench.call(call)
    assert bench.call("stream_ifmap(0, 0, FRAME, 1)") == Status.OK
    assert bench.call("stream_ofmap(0, 0, OUT, 50)") == Status.OK
    frame: bytes = bench.names["OUT"].tobytes()
    return frame


def test_no_row_stands_twice() -> None:
    assert len(set(map(label, CASES))) == len(CASES)
