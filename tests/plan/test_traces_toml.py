"""Loads from TOML: what is read, and what is refused, by key."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from repertory.models.errors import ConfigError
from repertory.runtime.plan.toml_trace import MAX_TOML, read_toml
from repertory.runtime.plan.trace import GroupLoad, ModelLoad

LOBBY = """
seconds = 40
seed = 3
groups = 2
swap_ms = 20
[[model]]
name = "entrance"
service_ms = 6
deadline_ms = 66
fps = 15
jitter_ms = 4
dropped = 0.1
[[model]]
name = "search"
service_ms = 2.5
priority = 1
rate = 30
groups = [1]
[[model]]
name = "clumps"
service_ms = 1
weight = 2.5
max_wait = 0.5
rate = 100
cv = 3
[[model]]
name = "nights"
service_ms = 1
burst_rate = 20
burst_seconds = 2
burst_off = 0.5
[[model]]
name = "callers"
service_ms = 1
clients = 8
groups = ["sim://0?window=1&swap_ms=20", 1]
[[model]]
name = "idle"
service_ms = 1
"""

SHORT = """
groups = 1
swap_ms = 8
[[model]]
name = "a"
service_ms = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lobby.toml"


def test_what_is_written_down_is_read(file: Path) -> None:
    file.write_text(LOBBY)
    trace = read_toml(file)
    assert (trace.name, trace.seconds, trace.seed) == ("lobby", 40.0, 3)
    assert trace.groups == tuple(GroupLoad(f"sim://{index}?window=1&swap_ms=20") for index in range(2))
    assert trace.models == (
        ModelLoad(name="entrance", service=0.006, swap=0.02, deadline=0.066),
        ModelLoad(name="search", service=0.0025, swap=0.02, priority=1, groups=(1,)),
        ModelLoad(name="clumps", service=0.001, swap=0.02, weight=2.5, max_wait=0.5),
        ModelLoad(name="nights", service=0.001, swap=0.02),
        ModelLoad(name="callers", service=0.001, swap=0.02, clients=8, groups=(0, 1)),
        ModelLoad(name="idle", service=0.001, swap=0.02),
    )
    assert trace == read_toml(file)
    assert trace.arrivals != read_toml(file, seed=4).arrivals
    moments = [a.time for a in trace.arrivals]
    assert moments == sorted(moments)
    assert {(a.deadline, a.priority) for a in trace.arrivals if a.model < 2} == {(0.066, 0), (math.inf, 1)}


def test_the_load_is_as_described(file: Path) -> None:
    file.write_text(LOBBY.replace("seconds = 40", "seconds = 600"))
    trace = read_toml(file)
    times = [np.array([a.time for a in trace.arrivals if a.model == model]) for model in range(6)]
    counts = [each.size / 600 for each in times]
    assert counts[:3] == pytest.approx([15 * 0.9, 30, 100], rel=0.06)
    assert counts[3] == pytest.approx(20 * 0.5 * 1.21, rel=0.35)
    assert counts[4:] == [0, 0]
    late = times[0] * 15 % 1 / 15
    assert np.ptp((late - late[0] + 0.033) % (1 / 15)) == pytest.approx(0.004, rel=0.05)
    assert np.diff(times[2]).std() / np.diff(times[2]).mean() == pytest.approx(3, rel=0.1)
    quiet = np.bincount((times[3] // 2).astype(int), minlength=300) == 0
    assert quiet.mean() == pytest.approx(0.5, abs=0.1)
    assert quiet[1:][quiet[:-1]].mean() == pytest.approx(
        0.5, abs=0.15
    )  # a block does not know the one before


def test_devices_of_any_family_are_named_by_address(file: Path) -> None:
    file.write_text("""
name = "two boxes"
[[group]]
address = "sim+memx://0"
[[group]]
address = "sim://1?swap_ms=8"
[[model]]
name = "a"
path = "nets/a.dfp"
service_ms = 3
groups = ["sim+memx://0"]
""")
    trace = read_toml(file)
    assert (trace.name, trace.seconds, trace.seed) == ("two boxes", 60.0, 1)
    assert trace.groups == (GroupLoad("sim+memx://0"), GroupLoad("sim://1?swap_ms=8"))
    path = str(file.parent / "nets/a.dfp")
    assert trace.models == (ModelLoad(name="a", service=0.003, path=path, groups=(0,)),)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *(
            (SHORT + line, line.partition(" ")[0])
            for line in ("fps = 0", "fps = nan", "rate = -1", "rate = inf")
        ),
        *(
            (SHORT + line, line.partition(" ")[0])
            for line in ("deadline_ms = 0", "weight = 0", "weight = -1")
        ),
        *(
            (SHORT + line, line.partition(" ")[0])
            for line in ("max_wait = 0", "clients = 0", "priority = 128")
        ),
        (SHORT + "fps = 5\ndropped = 1.0", "dropped"),
        (SHORT + "fps = 5\njitter_ms = -1", "jitter_ms"),
        (SHORT + "rate = 5\ncv = 0", "cv"),
        (SHORT + "fps = 5\nrate = 5", "model a: fps and rate exclude"),
        (SHORT + "rate = 5\njitter_ms = 5", "jitter_ms goes with fps"),
        (SHORT + "fps = 5\ncv = 5", "cv goes with rate"),
        (SHORT + "burst_off = 0.5", "burst_off goes with burst_rate"),
        (SHORT + "groups = [1]", "there is no group 1"),
        (SHORT + "groups = [-1]", "there is no group -1"),
        (SHORT + 'groups = ["sim://"]', "there is no group 'sim://'"),
        (SHORT + "groups = []", "groups"),
        (SHORT + "swap_ms = 3", "swap_ms"),
        (SHORT + '[[model]]\nname = "a"\nservice_ms = 1', "two models are named a"),
        (SHORT.replace("service_ms = 3", "service_ms = 0"), "service_ms"),
        (SHORT.replace("service_ms = 3", ""), "service_ms"),
        (SHORT.replace("swap_ms = 8", ""), "give groups and swap_ms"),
        (SHORT.replace("groups = 1", "groups = 0"), "groups"),
        ("seconds = nan\n" + SHORT, "seconds"),
        ("seconds = 0\n" + SHORT, "seconds"),
        ("seed = -1\n" + SHORT, "seed"),
        ("seconds = 1e8\n" + SHORT + "rate = 5", "requests"),
        (SHORT + '[[group]]\naddress = "sim://"', "groups and .* exclude"),
        ('group = [{address = "sim"}]\nmodel = [{name = "a", service_ms = 1}]', "sim"),
        (
            'group = [{address = "sim://"}, {address = "sim://"}]\nmodel = [{name = "a", service_ms = 1}]',
            "twice",
        ),
        ("groups = 1\nswap_ms = 1", "model"),
        ("groups = ", "Invalid value"),
        ("x = " + "[" * 5000, "lobby"),
        ("#" * (MAX_TOML + 1), "bytes"),
    ],
)
def test_what_cannot_be_is_refused_by_file_and_key(text: str, word: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=word) as caught:
        read_toml(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_files_that_cannot_be_read_are_refused(file: Path) -> None:
    for path in (file, file.parent, Path("a\0b")):
        with pytest.raises(ConfigError):
            read_toml(path)
    file.write_bytes(b"\xff\xfe" + bytes(range(256)))
    with pytest.raises(ConfigError, match="lobby"):
        read_toml(file)
