"""Loads from CSV: what is read, and what is refused, by file and line."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from repertory.models.errors import ConfigError
from repertory.runtime.plan import csv_trace
from repertory.runtime.plan.csv_trace import read_csv
from repertory.runtime.plan.generators import GENERATED, generate
from repertory.runtime.plan.trace import Arrival, GroupLoad, Trace

HEAD = {"seconds": "60.0", "groups": "2", "models": "3", "service_ms": "6", "swap_ms": "20"}
COLUMNS = "time_s,model,deadline_s,priority"
ROWS = ("0.5,0,0.066,0", "0.5,2,1,-3", "2.25,0,inf,5")


def written(*rows: str, columns: str = COLUMNS, **head: str | None) -> str:
    """Return a file with these rows; keys of the head that are None are left out."""
    told = [f"# {key}={value}" for key, value in (HEAD | head).items() if value is not None]
    return "\n".join([*told, columns, *(rows or ROWS)]) + "\n"


def as_csv(trace: Trace) -> str:
    """Write a trace as the reference generator does."""
    rows = [f"{a.time:.6f},{a.model},{a.deadline},{a.priority}" for a in trace.arrivals]
    first = trace.models[0]
    assert first.swap is not None
    return written(
        *rows,
        trace=trace.name,
        seed=str(trace.seed),
        seconds=str(trace.seconds),
        groups=str(len(trace.groups)),
        models=str(len(trace.models)),
        service_ms=f"{first.service * 1e3:g}",
        swap_ms=f"{first.swap * 1e3:g}",
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "load.csv"


@pytest.mark.parametrize("name", [name for name in GENERATED if name not in ("T5", "T7")])
def test_a_generated_trace_survives_its_file(name: str, file: Path) -> None:
    trace = generate(name, 4, 5.0)
    file.write_text(as_csv(trace))
    read = read_csv(file)
    assert (read.name, read.seed, read.seconds, read.groups) == (name, 4, 5.0, trace.groups)
    for model, other in zip(read.models, trace.models, strict=True):
        idle = not any(arrival.model == trace.models.index(other) for arrival in trace.arrivals)
        assert (model.name, model.service, model.swap) == (other.name, other.service, other.swap)
        assert idle or (model.deadline, model.priority) == (other.deadline, other.priority)
    assert [a[1:] for a in read.arrivals] == [a[1:] for a in trace.arrivals]
    moments = zip(read.arrivals, trace.arrivals, strict=True)
    assert max(abs(a.time - b.time) for a, b in moments) <= 0.5001e-6


def test_what_is_told_is_read(file: Path) -> None:
    file.write_bytes(("\ufeff# by hand\n# vendor=x\n\n" + written()).replace("\n", "\r\n").encode())
    trace = read_csv(file, window=2)
    assert (trace.name, trace.seed, trace.seconds) == ("load", None, 60.0)
    assert trace.groups == tuple(GroupLoad(f"sim://{i}?window=2&swap_ms=20") for i in range(2))
    assert trace.arrivals == (
        Arrival(0.5, 0, 0.066, 0),
        Arrival(0.5, 2, 1.0, -3),
        Arrival(2.25, 0, math.inf, 5),
    )
    assert [(m.service, m.swap) for m in trace.models] == [(0.006, 0.02)] * 3
    assert [(m.deadline, m.priority) for m in trace.models] == [(0.066, 0), (math.inf, 0), (1.0, -3)]


def test_the_caller_overrides_and_completes_what_is_told(file: Path) -> None:
    file.write_text(written(groups=None, models="1", swap_ms="x"))
    trace = read_csv(file, seconds=3, groups=4, models=5, service_ms=0.5, swap_ms=0)
    assert (trace.seconds, len(trace.groups), len(trace.models)) == (3.0, 4, 5)
    assert {(model.service, model.swap) for model in trace.models} == {(0.0005, 0.0)}
    with pytest.raises(ConfigError, match=r"load\.csv: .*`# groups=`"):
        read_csv(file)


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written().encode())))
    assert len(read_csv("-").arrivals) == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written("x").encode())))
    with pytest.raises(ConfigError, match="standard input, line 7: "):
        read_csv("-")


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("nan,0,1,0", "time nan"),
        ("inf,0,1,0", "time inf"),
        ("-0.1,0,1,0", "time -0.1"),
        ("0.4,0,1,0", "in order"),
        ("61.5,0,1,0", "ends after 60"),
        ("1,3,1,0", "model 3"),
        ("1,-1,1,0", "model -1"),
        ("1,1.0,1,0", "'1.0'"),
        ("1,,1,0", "COLUMNS"),
        ("1,0,0,0", "deadline 0"),
        ("1,0,-1,0", "deadline -1"),
        ("1,0,nan,0", "deadline nan"),
        ("1,0,1,128", "priority 128"),
        ("1,0,1,-129", "priority -129"),
        ("1,0,1,0.5", "'0.5'"),
        ("1,0,1", "COLUMNS"),
        ("1,0,1,0,9", "COLUMNS"),
        ("1_0,0,1,0", "COLUMNS"),
        ("\u0661,0,1,0", "COLUMNS"),
        ("# groups=9", "COLUMNS"),
        ("1" * 1100 + ",0,1,0", "1024 bytes"),
        ("1,0," + "9" * 900 + ",0", ""),
        ("1," + "9" * 900 + ",1,0", "model 9"),
    ],
)
def test_a_bad_row_is_named_by_its_line(row: str, word: str, file: Path) -> None:
    file.write_text(written(ROWS[0], row, ROWS[2]))
    if not word:  # so far away that it is infinite
        assert read_csv(file).arrivals[1].deadline == math.inf
        return
    with pytest.raises(ConfigError) as caught:
        read_csv(file)
    assert f"{file}, line 8: " in str(caught.value)
    assert word.replace("COLUMNS", COLUMNS) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "is missing"),
        ("# seconds=1\n", "is missing"),
        ("1,0,1,0\n", "line 1: '1,0,1,0' came before"),
        (written(columns="time,model"), "line 6: 'time,model' came before"),
        ("\n".join(f"# {key}={value}" for key, value in HEAD.items()) + f"\n{COLUMNS}\n", "no requests"),
        ("# groups=1\n" + written(), "line 3: groups is told twice"),
        (written(seconds="nan"), "seconds"),
        (written(seconds="0"), "seconds"),
        (written(seconds="inf"), "seconds"),
        (written(groups="0"), "groups"),
        (written(groups="1.5"), "groups"),
        (written(models="5000"), "models"),
        (written(service_ms="-1"), "service_ms"),
        (written(service_ms="0"), "service_ms"),
        (written(swap_ms="-1"), "swap_ms"),
        (written(seed="-1"), "seed"),
        (written(seconds=None), "seconds"),
        (written(service_ms=None), "service_ms"),
    ],
)
def test_a_bad_head_is_named(text: str, word: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=word) as caught:
        read_csv(file)
    assert str(file) in str(caught.value)


def test_files_that_cannot_be_read_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (file, file.parent, Path("a\0b")):
        with pytest.raises(ConfigError):
            read_csv(path)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100)
    with pytest.raises(ConfigError, match="line 1: this is no text"):
        read_csv(file)
    with pytest.raises(ConfigError, match="line 1: more than 1024 bytes"):
        read_csv("/dev/zero")
    file.write_text(written())
    with pytest.raises(ConfigError, match="groups"):
        read_csv(file, groups=0)
    with pytest.raises(ConfigError, match="window"):
        read_csv(file, window=0)
    monkeypatch.setattr(csv_trace, "MAX_ARRIVALS", 2)
    with pytest.raises(ConfigError, match="line 9: at most 2 requests"):
        read_csv(file)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(written())),
            st.integers(0, 12),
            st.one_of(
                st.sampled_from(["nan", "-", "1e999", ",", "\n", "#", "=", "inf", "9", ".", "\0"]).map(
                    str.encode
                ),
                st.binary(max_size=6),
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
@example([(len(written()) - 13, 4, b"1e308")])
def test_a_damaged_file_is_read_soundly_or_refused(file: Path, damages: list[tuple[int, int, bytes]]) -> None:
    data = written().encode()
    for place, gone, new in damages:
        data = data[:place] + new + data[place + gone :]
    file.write_bytes(data)
    try:
        trace = read_csv(file)
    except ConfigError as error:
        assert str(file) in str(error)  # noqa: PT017  (either outcome is right)
        return
    last = 0.0
    assert trace.arrivals
    for arrival in trace.arrivals:
        assert last <= arrival.time <= trace.seconds + csv_trace.LATE < math.inf
        assert 0 <= arrival.model < len(trace.models)
        assert arrival.deadline > 0
        assert -128 <= arrival.priority <= 127
        last = arrival.time
    assert all(model.service > 0 and model.swap is not None and model.swap >= 0 for model in trace.models)
