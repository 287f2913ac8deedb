"""`repertory plan`: loads in, numbers and pictures out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from repertory.runtime.plan import compare
from repertory.runtime.plan.trace import Trace

from .conftest import Repertory

WANTED = {"policy", "goodput", "worst_model", "per_model", "on_time_per_second", "swaps_per_second", "bound"}
SHARES = ("goodput", "worst_model", "bound", "optimum")
CSV = "# seconds=1\n# groups=1\n# models=2\n# service_ms=10\n# swap_ms=20\ntime_s,model,deadline_s,priority\n"
BURST = CSV + "".join(f"0.1,{model},0.1,0\n" for model in (0, 1) * 4)
"""Eight requests at once, two models: one swap and eight services take 100 ms, two swaps 120 ms."""


@pytest.fixture
def burst(tmp_path: Path) -> Path:
    path = tmp_path / "burst.csv"
    path.write_text(BURST)
    return path


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_optimum_is_searched_where_it_is_asked_for(
    repertory: Repertory, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def search(trace: Trace) -> float:
        searched.append(trace.name)
        return 0.987

    monkeypatch.setattr(compare, "cameras_optimum", search)
    plan = ("plan", "T1", "--policy", "hailort", "--seconds", 0.5)
    without = (*plan, "--no-optimum")
    (told,) = _lines(repertory(*without, "--json").out)
    assert (told["optimum"], told["bound"], searched) == (None, 1.0, [])
    assert "optimum" not in repertory(*without).out + repertory(*without, "--compare").out
    assert _lines(repertory(*plan, "--json").out)[0]["optimum"] == 0.987
    assert "the optimum 98.7 %" in repertory(*plan).out
    assert "\noptimum " in repertory(*plan, "--compare").out
    assert searched == ["T1"] * 3


def test_json_is_one_object_a_policy(repertory: Repertory) -> None:
    policies = ("--policy", "hailort", "--policy", "fifo")
    done = repertory("plan", "T1", *policies, "--seconds", 1, "--json")
    assert done.code == 0
    assert [each["policy"] for each in _lines(done.out)] == ["hailort", "fifo"]
    for told in _lines(done.out):
        assert told.keys() >= WANTED
        assert all(0 <= told[share] <= 1 for share in SHARES)
        assert told["goodput"] <= told["optimum"] <= told["bound"]
        assert told["per_model"].keys() == {f"m{index}" for index in range(4)}
        assert told["worst_model"] == min(told["per_model"].values())
        assert told["bound_per_second"] == pytest.approx(told["bound"] * told["arrivals"])
        assert told["on_time_per_second"] == pytest.approx(told["goodput"] * told["arrivals"])


def test_a_burst_that_is_easily_reckoned(repertory: Repertory, burst: Path) -> None:
    done = repertory("plan", "--arrivals", burst, "--policy", "hailort", "--json")
    (told,) = _lines(done.out)
    assert (told["arrivals"], told["on_time"], told["late"]) == (8, 6, 2)  # 20 + 4 x 10, 20 + 2 x 10 ms
    assert told["per_model"] == {"m0": 1.0, "m1": 0.5}
    assert told["goodput"] == 0.75
    assert told["swaps_per_second"] == pytest.approx(2)


def test_would_a_second_device_help(repertory: Repertory, burst: Path) -> None:
    (told,) = _lines(
        repertory("plan", "--arrivals", burst, "--policy", "hailort", "--groups", 2, "--json").out
    )
    assert told["goodput"] == 1.0
    assert len(told["time"]) == 2


def test_requests_from_the_standard_input(repertory: Repertory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(BURST.encode())

    monkeypatch.setattr("sys.stdin", Stdin)
    (told,) = _lines(repertory("plan", "--arrivals", "-", "--policy", "hailort", "--json").out)
    assert told["arrivals"] == 8


def test_a_description_in_toml(repertory: Repertory, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        "seconds = 2\ngroups = 1\nswap_ms = 5\n"
        '[[model]]\nname = "entrance"\nservice_ms = 10\ndeadline_ms = 100\nfps = 10\n'
        '[[model]]\nname = "till"\nservice_ms = 10\ndeadline_ms = 100\nclients = 2\n'
    )
    done = repertory("plan", file, "--policy", "hailort")
    assert done.code == 0
    first, *_ = done.out.splitlines()
    assert first.startswith(f"{file.stem}, seed 1: 2 s, 2 models on 1 group")
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.strip()}
    assert float(rows["entrance"][0]) > 50
    assert float(rows["till"][0]) > 50
    assert "sim://0?window=1&swap_ms=5" in rows


def test_several_seeds_end_in_their_mean(repertory: Repertory) -> None:
    arguments = ("plan", "T6", "--seconds", 0.5, "--policy", "hailort")
    told = [_lines(repertory(*arguments, "--seed", seed, "--json").out)[0] for seed in ("1", "2", "1-2")]
    one, two, both = told
    assert one["goodput"] != two["goodput"]
    assert both["goodput"] == pytest.approx((one["goodput"] + two["goodput"]) / 2)
    assert (both["seed"], both["seeds"]) == (None, [1, 2])
    rows = [line.split() for line in repertory(*arguments, "--seed", "1-2").out.splitlines()[2:5]]
    assert [row[0] for row in rows] == ["1", "2", "mean"]
    assert [float(row[1]) for row in rows] == pytest.approx(
        [100 * each["goodput"] for each in told], abs=0.05
    )


def test_policies_side_by_side(repertory: Repertory, burst: Path) -> None:
    done = repertory("plan", "--arrivals", burst, "--compare")
    assert done.code == 0
    rows = {line.split()[0]: line.split() for line in done.out.splitlines()[1:]}
    wanted = ["policy", "fifo", "hailort", "hailort-burst-32", "mxa-manager", "swap-aware", "bound"]
    assert [name for name in wanted if name not in rows] == []
    assert len({len(row) for name, row in rows.items() if name in wanted}) == 1  # as many cells in each
    assert rows["hailort"][1:3] == ["75.0", "50.0"]
    assert rows["bound"][1:4] == ["100.0", "-", "8.0"]


def test_a_timeline(repertory: Repertory, burst: Path, tmp_path: Path) -> None:
    picture = tmp_path / "time & line.svg"
    done = repertory("plan", "--arrivals", burst, "--policy", "hailort", "--timeline", picture, "--span", 0.5)
    assert done.code == 0
    root = ET.fromstring(picture.read_text())
    boxes = [box for box in root if box.find("{*}title") is not None]
    told = [box.findtext("{*}title") or "" for box in boxes]
    assert told.count("m0: swap 0.1000 s to 0.1200 s") == 1
    assert "m0: compute 0.1200 s to 0.1600 s" in told  # four frames without a gap are one box
    assert "m1: swap 0.1600 s to 0.1800 s" in told
    colours = {text.partition(" 0.")[0]: box.get("fill") for box, text in zip(boxes, told, strict=True)}
    assert colours["m0: swap"] == colours["m1: swap"]
    assert colours["m0: compute"] != colours["m1: compute"]
    lane = float(next(box for box in root.findall("{*}rect")[1:]).get("width", "0"))
    lengths = {
        text.split(" 0.")[0]: float(box.get("width", "0")) for box, text in zip(boxes, told, strict=True)
    }
    assert lengths["m0: swap"] == pytest.approx(lane * 0.02 / 0.5, rel=0.01)
    assert lengths["m0: compute"] == pytest.approx(lane * 0.04 / 0.5, rel=0.01)
    words = [text.text for text in root.findall("{*}text")]
    assert {"sim://0", "not on time", "0.5 s", "m0", "m1"} <= set(words)


@pytest.mark.parametrize(
    ("arguments", "blamed"),
    [
        ([], "a load is wanted"),
        (["T1", "--arrivals", "some.csv"], "a load is wanted"),
        (["T9"], "T9: one of T0"),
        (["none.toml"], "none.toml"),
        (["--arrivals", "none.csv"], "none.csv"),
        (["--arrivals", "none.csv", "--seed", "2"], "--seed 2"),
        (["T1", "--seed", "2-1"], "--seed 2-1"),
        (["T1", "--seed", "-1"], "--seed"),
        (["T1", "--seconds", "nan"], "seconds"),
        (["T1", "--seconds", "0"], "seconds"),
        (["T1", "--groups", "0"], "groups 0"),
        (["T1", "--window", "0"], "window 0"),
        (["T1", "--policy", "best"], "'best'"),
        (["T1", "--policy", "hailort:burst=many"], "burst"),
        (["T1", "--timeline", "picture.bmp"], "picture.bmp"),
        (["T1", "--timeline", "nowhere/a.svg", "--seconds", "0.1"], "nowhere/a.svg"),
        (["T1", "T2", "--timeline", "a.svg"], "one policy on one load"),
        (["T1", "--span", "0"], "--span 0"),
    ],
)
def test_bad_arguments_end_in_one_line(repertory: Repertory, arguments: list[str], blamed: str) -> None:
    done = repertory("plan", *arguments)
    assert (done.code, done.out) == (2, "")
    assert blamed in done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1 or done.err.startswith("usage:")
