from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest

from .conftest import Repertory

Sketched = Callable[[str], Path]

BOARD = """
[[group]]
address = "sim://?service_ms=0.1&swap_ms=1"

[[model]]
path = "one.json"
name = "first"
queue = 16
overflow = "wait"
timeout = 5.0

[[model]]
path = "two.json"
warm = true
"""


def board(folder: Path, text: str = BOARD) -> Path:
    path = folder / "board.toml"
    path.write_text(text)
    return path


def test_sketches_on_a_simulated_device(repertory: Repertory, sketched: Sketched) -> None:
    done = repertory("run", sketched("one"), sketched("two"), "--device", "sim://?swap_ms=1", "--count", 20)
    assert done.code == 0
    head, one, two, _, group = done.out.splitlines()
    assert head.split()[0] == "model"
    assert one.split()[:2] == ["one", "20"]
    assert two.split()[:2] == ["two", "20"]
    assert group.startswith("sim://?swap_ms=1 (simulated sim): 40 frames, 2 swaps")


def test_json_has_statistics(repertory: Repertory, sketched: Sketched) -> None:
    found = repertory("run", sketched("one"), "--device", "null://", "--count", 5, "--json").json
    assert found.keys() == {"models", "groups"}
    assert found["models"]["one"]["answered"] == 5
    assert found["groups"]["null://"]["completed"] == 5


def test_a_configuration(repertory: Repertory, sketched: Sketched, tmp_path: Path) -> None:
    for name in ("one", "two"):
        sketched(name)
    found = repertory("run", board(tmp_path), "--count", 30, "--concurrency", 20, "--json").json
    assert {name: model["answered"] for name, model in found["models"].items()} == {"first": 30, "two": 31}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[group]", "line 1"),
        ("[[group]]\naddress = 3", "group 1: address 3 came, a text is wanted"),
        ("[[model]]\npath = 'one.json'", "group"),
        ("group = []", "at least one device"),
        ("[[group]]\naddress = 'sim://'\nspeed = 3", "speed"),
        ("[[group]]\naddress = 'abacus://'", "abacus"),
        ("[[group]]\naddress = 'sim://?speed=3'", "speed"),
        ("[[group]]\naddress = 'sim://'\n[[group]]\naddress = 'sim://'", "given twice"),
        (BOARD.replace("16", "0"), "queue 0 came"),
        (BOARD.replace('"wait"', '"pray"'), "pray"),
        (BOARD.replace("timeout = 5.0", "timeout = -1"), "timeout -1.0 came"),
        (BOARD.replace("warm", "warmer"), "warmer"),
        (BOARD.replace("warm = true", 'name = "first"'), "'first' is loaded"),
    ],
)
def test_a_wrong_configuration_exits_with_2(
    repertory: Repertory, sketched: Sketched, tmp_path: Path, text: str, complaint: str
) -> None:
    for name in ("one", "two"):
        sketched(name)
    done = repertory("run", board(tmp_path, text))
    assert done.code == 2
    assert complaint in done.err


def test_a_configuration_that_is_not_there(repertory: Repertory, tmp_path: Path) -> None:
    assert repertory("run", tmp_path / "none.toml").code == 2


def test_a_configuration_stands_alone(repertory: Repertory, sketched: Sketched, tmp_path: Path) -> None:
    path = board(tmp_path)
    assert repertory("run", path, sketched("one")).code == 2
    assert repertory("run", path, "--device", "sim://").code == 2
    assert repertory("run", path, "--network", "one").code == 2


def test_a_model_without_a_device(repertory: Repertory, sketched: Sketched) -> None:
    done = repertory("run", sketched("one"))
    assert done.code == 2
    assert "--device" in done.err


def test_a_model_that_is_not_there(repertory: Repertory, tmp_path: Path) -> None:
    done = repertory("run", tmp_path / "none.dfp", "--device", "sim+memx://0")
    assert done.code == 1
    assert "none.dfp" in done.err


def test_one_name_for_two_models(repertory: Repertory, sketched: Sketched) -> None:
    path = sketched("one")
    assert repertory("run", path, path, "--device", "sim://").code == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--input", "x"], "NAME=FILE.npy"),
        (["--input", "x=none.npy"], "No such file"),
        (["--input", "x={folder}/one.json"], "one.json"),
        (["--input", "z={folder}/right.npy"], "no model has such an input; there are x"),
        (["--input", "x={folder}/wrong.npy"], "shape (5,) came"),
        (["--count", "0"], "at least 1"),
        (["--concurrency", "0"], "at least 1"),
        (["--timeout", "0"], "more than 0"),
        (["--timeout", "nan"], "more than 0"),
        (["--save", "{folder}/one.json"], "one.json"),
    ],
)
def test_a_wrong_option_exits_with_2(
    repertory: Repertory, sketched: Sketched, tmp_path: Path, options: list[str], complaint: str
) -> None:
    np.save(tmp_path / "right.npy", np.ones(4, np.float32))
    np.save(tmp_path / "wrong.npy", np.ones(5, np.float32))
    given = [option.format(folder=tmp_path) for option in options]
    done = repertory("run", sketched("one"), "--device", "null://", *given)
    assert done.code == 2
    assert complaint in done.err


def test_answers_are_saved(repertory: Repertory, sketched: Sketched, tmp_path: Path) -> None:
    np.save(tmp_path / "right.npy", np.ones(4, np.float32))
    saved: list[bytes] = []
    for options in (["--input", f"x={tmp_path / 'right.npy'}"], []):
        done = repertory(
            "run",
            sketched("one"),
            "--device",
            "sim://",
            "--count",
            2,
            "--save",
            tmp_path / "out" / "a",
            *options,
        )
        assert done.code == 0
        array = np.load(tmp_path / "out" / "a" / "one.y.npy")
        assert array.shape == (2, 3)
        saved.append(array.tobytes())
    assert saved[0] != saved[1]


def test_late_requests_are_counted(repertory: Repertory, sketched: Sketched) -> None:
    device = "sim://?service_ms=20&swap_ms=0&window=1"
    options = ("--timeout", 0.07, "--count", 12, "--concurrency", 12, "--json")
    done = repertory("run", sketched("one"), "--device", device, *options)
    assert done.code == 0
    model = done.json["models"]["one"]
    assert model["answered"] >= 1
    late = model["expired"] + model["withdrawn"]
    assert late >= 1
    assert model["answered"] + late == 12


def test_a_model_that_is_always_late_exits_with_1(repertory: Repertory, sketched: Sketched) -> None:
    device = "sim://?service_ms=500&swap_ms=0"
    done = repertory("run", sketched("one"), "--device", device, "--timeout", 0.02, "--count", 2)
    assert done.code == 1
    assert "deadline" in done.err


def test_a_group_that_is_not_there(repertory: Repertory, sketched: Sketched) -> None:
    done = repertory("run", sketched("one"), "--device", "sim+memx://3?groups=2")
    assert done.code == 1
    assert "looked for MX3 device group 3, found 2: 0 to 1" in done.err


_TELLS_WHAT_IT_DOES = """
import sys
import anyio
from repertory.runtime import cli
from repertory.transports.simulated import SimulatedDevice

start, close = SimulatedDevice.start, SimulatedDevice.close

def told_start(self, frame):
    start(self, frame)
    print("started", file=sys.stderr, flush=True)

async def slow_close(self, *, bound):
    print("closing", file=sys.stderr, flush=True)
    if "hang" in sys.argv[1]:
        await anyio.sleep_forever()
    await close(self, bound=bound)

SimulatedDevice.start, SimulatedDevice.close = told_start, slow_close
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("closes", "last"),
    [
        ("at once", []),
        ("hangs", ["repertory run: interrupted again, left without closing"]),
    ],
)
def test_ctrl_c_closes_in_order_and_a_second_one_leaves_with_one_line(
    sketched: Sketched, closes: str, last: list[str]
) -> None:
    run = ["run", str(sketched("one")), "--device", "sim://", "--count", "1000000"]
    command = [sys.executable, "-c", _TELLS_WHAT_IT_DOES, closes, *run]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr
        assert process.stderr.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        assert "closing\n" in process.stderr
        if last:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == last
