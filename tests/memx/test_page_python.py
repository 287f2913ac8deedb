"""The Python calls of the vendor's page, and those that scripts use beyond it, on both simulated cards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from repertory.transports.memx.constants import Status
from repertory.transports.memx.mxa.module import Mxa
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx

from .files import Net
from .page import (
    INPUT_SIZE,
    NETS,
    NO_SIZE,
    OUTPUT_SIZE,
    PROFILES,
    frame,
    loaded,
    outputs,
    same,
    simulator,
    write_model,
)


@pytest.fixture(params=PROFILES)
def library(request: pytest.FixtureRequest) -> Iterator[SimulatedLibmemx]:
    made = simulator(request.param)
    yield made
    assert made.faults == []


@pytest.fixture
def mxa(library: SimulatedLibmemx) -> Mxa:
    return Mxa(library)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


def told(mxa: Mxa, net: Net, seed: int = 0) -> bool:
    image, mean = outputs()
    assert mxa.stream_ifmap(0, 0, frame(seed)) == 0
    assert mxa.stream_ofmap(0, 0, image) == mxa.stream_ofmap(0, 1, mean, timeout=200) == 0
    return same(net, seed, image, mean)


def test_python_locks(mxa: Mxa) -> None:
    assert mxa.lock(0) == 0
    assert mxa.trylock(0) == Status.GROUP_IN_USE
    assert mxa.unlock(0) == 0
    assert mxa.trylock(0) == 0
    assert mxa.unlock(0) == mxa.unlock(0) == 0
    assert mxa.lock(2) == Status.BAD_GROUP_ID


def test_python_open_and_close(mxa: Mxa) -> None:
    assert mxa.open(0, 0, 3) == mxa.open(0, 0, mxa.device_cascade_plus) == 0
    assert mxa.open(0, 1, 3) == Status.CONTEXT_ON_OTHER_GROUP
    assert [mxa.close(0) for _ in range(4)] == [0, 0, 0, 0]
    assert mxa.open(0, 1, 3) == 0


def test_python_download_and_streams(mxa: Mxa, model: Path) -> None:
    loaded(mxa, model)
    assert all(told(mxa, NETS[0], seed) for seed in range(5))
    assert mxa.set_stream_disable(0, 1) == 0
    assert mxa.stream_ifmap(0, 0, frame(), 5) == 0
    assert mxa.stream_ofmap(0, 0, outputs()[0], 5) == Status.OUTPUT_TIMEOUT
    assert mxa.set_stream_enable(0, 0) == mxa.stream_ofmap(0, 0, outputs()[0]) == 0


def test_python_download_in_two_steps(mxa: Mxa, model: Path) -> None:
    assert mxa.open(0, 0, 3) == 0
    assert mxa.download(0, model, 0, mxa.download_type_wtmem) == 0
    assert mxa.download(0, model, 1, mxa.download_type_model) == 0
    assert mxa.set_stream_enable(0, 0) == 0
    assert told(mxa, NETS[1])


def test_python_retry_after_a_failed_download(mxa: Mxa, library: SimulatedLibmemx, model: Path) -> None:
    library.fail_download()
    assert mxa.open(0, 0, 3) == 0
    assert mxa.download(0, model, 0, 3) == Status.DOWNLOAD_FAILED
    assert mxa.download(0, model, 0, 3) == 0
    assert mxa.get_ifmap_size(0, 0) == INPUT_SIZE


def test_python_beyond_the_page(mxa: Mxa, model: Path) -> None:
    assert mxa.config_mpu_group(0, 0) == 0
    assert mxa.config_mpu_group(0, 5) == Status.NOT_ENOUGH_CHIPS
    assert mxa.open(0, 0, 3) == 0
    assert mxa.set_ifmap_queue_size(0, 6) == mxa.set_ofmap_queue_size(0, 1000) == 0
    assert mxa.set_ifmap_queue_size(0, 0) == mxa.set_ofmap_queue_size(0, 1001) == Status.BAD_QUEUE_SIZE
    assert mxa.get_ifmap_size(0, 0) == mxa.get_ofmap_size(0, 0) == NO_SIZE
    assert mxa.download(0, model, 0, 3) == 0
    assert mxa.get_ifmap_size(0, 0) == INPUT_SIZE
    assert mxa.get_ofmap_size(0, 0) == OUTPUT_SIZE
    assert [mxa.stream_ifmap(0, 0, frame(), 1) for _ in range(6)] == [0] * 5 + [Status.INPUT_TIMEOUT]


def test_python_runtime_model_swap(mxa: Mxa, model: Path) -> None:
    assert mxa.open(0, 0, 3) == 0
    assert mxa.download(0, model, 0, mxa.download_type_wtmem) == 0
    for turn in (0, 1, 1, 0):
        assert mxa.lock(0) == 0
        assert mxa.set_stream_disable(0, 1) == 0
        assert mxa.download(0, model, turn, mxa.download_type_model) == 0
        assert mxa.set_stream_enable(0, 0) == 0
        assert told(mxa, NETS[turn], seed=turn)
        assert mxa.set_stream_disable(0, 1) == 0
        assert mxa.unlock(0) == 0


def test_python_device_selection(mxa: Mxa, model: Path) -> None:
    assert mxa.open(0, 0, 3) == 0
    for turn, group in enumerate((0, 1, 1, 0)):
        assert mxa.trylock(group) == 0
        assert mxa.reconfigure(0, group) == 0
        assert mxa.stream_ifmap(0, 0, frame(), 1) == Status.INPUT_FLOW_NOT_CONFIGURED  # nothing is loaded
        assert mxa.download(0, model, 1, 3) == 0
        assert mxa.set_stream_enable(0, 0) == 0
        assert told(mxa, NETS[1], seed=turn)
        assert mxa.set_stream_disable(0, 1) == 0
        assert mxa.unlock(group) == 0
    assert mxa.reconfigure(0, 2) == Status.BAD_GROUP_ID
