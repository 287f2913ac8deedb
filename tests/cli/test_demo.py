from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from repertory.runtime.demo import photos

from .conftest import Repertory

FACES = {"astronaut": 1, "camera": 1, "cat": 0, "coffee": 0, "rocket": 0}
FACE = {"left", "top", "width", "height", "confidence", "landmarks"}


@pytest.fixture
def found(repertory: Repertory, tmp_path: Path) -> Any:
    done = repertory("demo", "--json", "--out", tmp_path / "out")
    assert done.code == 0
    return done.json


def count(found: Any) -> dict[str, int]:
    return {photo["name"]: len(photo["faces"]) for photo in found["photos"]}


def test_three_networks_find_the_faces_on_one_simulated_mx3(found: Any, tmp_path: Path) -> None:
    assert found.keys() == {"photos", "models", "groups"}
    assert count(found) == FACES
    assert all(face.keys() == FACE for photo in found["photos"] for face in photo["faces"])
    assert found["models"].keys() == {"pnet", "rnet", "onet"}
    for model in found["models"].values():
        assert model["answered"] == model["admitted"] > 0
        assert 0 < model["p50"] <= model["p99"]
        assert model["swaps"] >= 1
    (group,) = found["groups"].values()
    assert found["groups"].keys() == {"sim+memx://0"}
    assert group["simulated"] is True
    assert group["swaps"] > 1

    for name in FACES:  # beside each other, for a run takes seconds
        height, width, _ = photos.photo(name).shape
        with Image.open(tmp_path / "out" / f"{name}.png") as picture:
            assert picture.size == (width, height)
    with Image.open(tmp_path / "out" / "timeline.png") as picture:
        assert picture.width > picture.height > 100


def test_the_same_faces_on_the_processor(repertory: Repertory, found: Any, tmp_path: Path) -> None:
    done = repertory("demo", "--device", "cpu://", "--json", "--out", tmp_path / "cpu")
    assert done.code == 0
    assert done.json["photos"] == found["photos"]
    assert done.json["groups"]["cpu://"]["simulated"] is False


def test_the_same_faces_with_a_network_on_each_of_three_families(
    repertory: Repertory, found: Any, tmp_path: Path
) -> None:
    places = {"pnet": "sim+memx://0", "rnet": "sim+xm-npu://", "onet": "sim+c7x://"}
    done = repertory("demo", "--devices", *places.values(), "--json", "--out", tmp_path)
    assert done.code == 0
    assert done.json["photos"] == found["photos"]
    for name, device in places.items():
        group = done.json["groups"][device]
        assert group["completed"] == done.json["models"][name]["answered"] > 0
        assert group["swaps"] == 1
    assert len(list(tmp_path.glob("timeline-*.png"))) == len(places)


def test_a_person_reads_faces_and_swaps(repertory: Repertory, tmp_path: Path) -> None:
    lines = repertory("demo", "--out", tmp_path).out.splitlines()
    assert lines[0].startswith("astronaut  1 face: at (")
    assert lines[2] == "cat        0 faces"
    assert lines[6].split()[:2] == ["model", "answers"]
    assert [line.split()[0] for line in lines[7:10]] == ["pnet", "rnet", "onet"]
    assert lines[-1].startswith(f"pictures: {tmp_path / 'astronaut.png'}")


@pytest.mark.parametrize("device", ["sim://", "memx://0", "sim+cpu://", "nonsense"])
def test_a_device_that_does_not_compute_the_networks(
    repertory: Repertory, tmp_path: Path, device: str
) -> None:
    done = repertory("demo", "--device", device, "--out", tmp_path)
    assert done.code == 2
    assert "sim+memx://, sim+xm-npu://, sim+c7x:// and cpu://" in done.err


def test_a_folder_that_cannot_be_made(repertory: Repertory, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = repertory("demo", "--device", "cpu://", "--out", tmp_path / "file")
    assert done.code == 2
    assert str(tmp_path / "file") in done.err
