"""Every example runs as a user would run it, warns of nothing, and prints what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CAMERA = re.compile(r"^(\w+): 40 frames: (\d+) answered, (\d+) superseded, (\d+) late", re.MULTILINE)


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_there_is_no_example_that_no_test_runs() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {
        "three_cameras.py",
        "plain_trio.py",
        "serving_loop.py",
        "stress_cancels.py",
        "mxa_script.py",
        "c7x_script.py",
        "xmm_script.py",
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_has_less_than_60_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("three_cameras.py", ["asyncio"]), ("three_cameras.py", ["trio"]), ("plain_trio.py", [])],
    ids=["asyncio", "trio", "plain trio"],
)
def test_every_frame_of_a_camera_has_one_end(name: str, arguments: list[str]) -> None:
    cameras = {
        match[1]: [int(count) for count in match.groups()[1:]]
        for match in CAMERA.finditer(run(name, *arguments))
    }
    assert cameras.keys() == {"door", "yard", "gate"}
    for answered, superseded, late in cameras.values():
        assert answered + superseded + late == 40
        assert answered > 0
        assert superseded > 0  # the device is too slow for three cameras


def test_the_serving_loop_answers_every_request() -> None:
    printed = run("serving_loop.py")
    answers = re.findall(r"^(detect|embed|read): (\d+) answers, p50 [\d.]+ ms$", printed, re.MULTILINE)
    assert [name for name, _ in answers] == ["detect", "embed", "read"]
    assert sum(int(count) for _, count in answers) == 300 + 3  # and a warm-up for each model
    swaps = re.search(r"^303 frames, (\d+) swaps", printed, re.MULTILINE)
    assert swaps
    assert int(swaps[1]) >= 3


def test_the_books_balance_after_the_stress() -> None:
    rows = re.findall(r"(\d+) admitted = (\d+) answered \+ (\d+) cancelled", run("stress_cancels.py"))
    assert len(rows) == 3
    admitted, answered, cancelled = (sum(map(int, column)) for column in zip(*rows, strict=True))
    assert admitted == answered + cancelled <= 600 + 3 * 8
    assert answered >= 400 + 3 * 8  # those that nobody cancels
    assert cancelled > 0


def test_the_script_for_the_vendors_module_reads_every_frame() -> None:
    assert re.fullmatch(r"50 frames, the last one is a \d\n", run("mxa_script.py"))


def test_the_script_for_the_vendors_class_runs_in_its_three_ways() -> None:
    first, last = run("c7x_script.py").splitlines()
    assert re.fullmatch(r"20 crops; the first: 4 offsets, \d+% sure", first)
    assert re.fullmatch(r"the last: \d+% sure, 1000000 cycles", last)


def test_the_script_for_the_vendors_eight_stages_runs() -> None:
    assert re.fullmatch(
        r"20 runs, \d+ bytes of weights; the last output: [0-9a-f]{16}\n", run("xmm_script.py")
    )
