"""The C examples of the vendor's page, as the same calls, on both simulated libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from repertory.models.errors import ConfigError
from repertory.transports.memx.constants import CHIP_GENERATION, DownloadType, Status
from repertory.transports.memx.library import Libmemx
from repertory.transports.memx.simulator.profile import ProfileName
from repertory.transports.world import drive

from .files import Net
from .page import (
    INPUT_SIZE,
    NETS,
    NO_SIZE,
    OUTPUT_SIZE,
    PROFILES,
    frame,
    outputs,
    same,
    simulator,
    write_model,
)

WEIGHTS, MODEL, BOTH = DownloadType.WEIGHTS, DownloadType.MODEL, DownloadType.WEIGHTS_AND_MODEL


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> ProfileName:
    chosen: ProfileName = request.param
    return chosen


@pytest.fixture
def library(profile: ProfileName) -> Iterator[Libmemx]:
    made = simulator(profile)
    yield made
    assert made.faults == []


@pytest.fixture
def model(tmp_path: Path) -> bytes:
    return str(write_model(tmp_path)).encode()


def answered(library: Libmemx, net: Net, *, seed: int = 0, model_id: int = 0) -> bool:
    """Stream one frame through a context; tell whether `net` answered."""
    image, mean = outputs()
    assert drive(library.memx_stream_ifmap(model_id, 0, frame(seed), 200)) == Status.OK
    assert drive(library.memx_stream_ofmap(model_id, 0, image, 200)) == Status.OK
    assert drive(library.memx_stream_ofmap(model_id, 1, mean, 200)) == Status.OK
    return same(net, seed, image, mean)


def opened(library: Libmemx) -> None:
    assert drive(library.memx_open(0, 0, CHIP_GENERATION)) == Status.OK


def test_c_lock(library: Libmemx) -> None:
    assert drive(library.memx_lock(0)) == Status.OK
    assert drive(library.memx_trylock(0)) == Status.GROUP_IN_USE
    assert drive(library.memx_unlock(0)) == Status.OK


def test_c_trylock(library: Libmemx) -> None:
    assert drive(library.memx_trylock(0)) == Status.OK
    assert drive(library.memx_trylock(0)) == Status.GROUP_IN_USE
    assert drive(library.memx_trylock(1)) == Status.OK
    assert drive(library.memx_unlock(0)) == Status.OK
    assert drive(library.memx_trylock(0)) == Status.OK


def test_c_unlock(library: Libmemx) -> None:
    assert drive(library.memx_unlock(0)) == Status.OK
    assert drive(library.memx_unlock(2)) == Status.BAD_GROUP_ID


def test_c_open(library: Libmemx) -> None:
    opened(library)
    opened(library)
    assert drive(library.memx_open(0, 1, CHIP_GENERATION)) == Status.CONTEXT_ON_OTHER_GROUP
    assert drive(library.memx_open(32, 0, CHIP_GENERATION)) == Status.BAD_MODEL_ID
    assert drive(library.memx_close(0)) == Status.OK


def test_c_close(library: Libmemx, profile: ProfileName) -> None:
    opened(library)
    opened(library)
    assert drive(library.memx_close(0)) == Status.OK
    assert drive(library.memx_get_ifmap_size(0, 0))[0] == Status.SIZE_UNKNOWN  # one use is left
    assert drive(library.memx_close(0)) == Status.OK
    not_open = Status.OK if profile == "strict" else Status.CONTEXT_NOT_OPEN
    assert drive(library.memx_close(0)) == not_open


def test_c_reconfigure(library: Libmemx, profile: ProfileName) -> None:
    opened(library)
    if profile == "strict":
        assert drive(library.memx_reconfigure(0, 1)) == Status.OK
        assert drive(library.memx_open(0, 1, CHIP_GENERATION)) == Status.OK  # it is on group 1 now
    else:
        with pytest.raises(ConfigError, match="does not export memx_reconfigure"):
            drive(library.memx_reconfigure(0, 1))


def test_c_config_mpu_group(library: Libmemx, model: bytes) -> None:
    opened(library)
    assert drive(library.memx_config_mpu_group(0, 0)) == Status.OK
    assert drive(library.memx_config_mpu_group(0, 5)) == Status.NOT_ENOUGH_CHIPS
    assert drive(library.memx_config_mpu_group(0, 4)) == Status.OK  # two chips, and the file is for four
    assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.DOWNLOAD_FAILED


def test_c_get_chip_gen(library: Libmemx) -> None:
    opened(library)
    assert drive(library.memx_get_chip_gen(0)) == (Status.OK, 31)


def test_c_download_model(library: Libmemx, model: bytes) -> None:
    opened(library)
    assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.OK
    assert drive(library.memx_set_stream_enable(0, 0)) == Status.OK
    assert answered(library, NETS[0])
    assert drive(library.memx_set_stream_disable(0, 1)) == Status.OK
    assert drive(library.memx_close(0)) == Status.OK


def test_c_download_model_in_two_steps(library: Libmemx, model: bytes, profile: ProfileName) -> None:
    opened(library)
    assert drive(library.memx_download_model(0, model, 0, WEIGHTS)) == Status.OK
    assert drive(library.memx_download_model(0, model, 0, MODEL)) == Status.OK
    done = profile == "strict"  # 2.11.2 takes the second for the first again
    size = drive(library.memx_get_ifmap_size(0, 0))
    assert size == (INPUT_SIZE if done else NO_SIZE)


def test_c_set_stream_enable(library: Libmemx, model: bytes) -> None:
    image, _ = outputs()
    opened(library)
    assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.OK
    assert drive(library.memx_stream_ifmap(0, 0, frame(), 200)) == Status.OK
    assert drive(library.memx_stream_ofmap(0, 0, image, 5)) == Status.OUTPUT_TIMEOUT  # nothing moves yet
    assert drive(library.memx_set_stream_enable(0, 0)) == Status.OK
    assert drive(library.memx_stream_ofmap(0, 0, image, 200)) == Status.OK


def test_c_set_stream_disable(library: Libmemx, model: bytes) -> None:
    opened(library)
    assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.OK
    assert drive(library.memx_set_stream_enable(0, 0)) == Status.OK
    assert answered(library, NETS[0])
    assert drive(library.memx_set_stream_disable(0, 1)) == Status.OK
    assert drive(library.memx_stream_ifmap(0, 0, frame(), 200)) == Status.OK
    assert drive(library.memx_stream_ofmap(0, 0, outputs()[0], 5)) == Status.OUTPUT_TIMEOUT


def test_c_get_ifmap_size(library: Libmemx, model: bytes) -> None:
    opened(library)
    assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.OK
    assert drive(library.memx_get_ifmap_size(0, 0)) == INPUT_SIZE
    assert drive(library.memx_get_ifmap_size(0, 1)) == NO_SIZE


def test_c_get_ofmap_size(library: Libmemx, model: bytes) -> None:
    opened(library)
    assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.OK
    assert drive(library.memx_get_ofmap_size(0, 0)) == OUTPUT_SIZE
    assert drive(library.memx_get_ofmap_size(0, 2)) == NO_SIZE


def test_c_streams(library: Libmemx, model: bytes) -> None:
    opened(library)
    assert drive(library.memx_stream_ifmap(0, 0, frame(), 200)) == Status.INPUT_FLOW_NOT_CONFIGURED
    assert drive(library.memx_stream_ofmap(0, 0, frame(), 200)) == Status.OUTPUT_FLOW_NOT_CONFIGURED
    assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.OK
    assert drive(library.memx_set_stream_enable(0, 0)) == Status.OK
    assert all(answered(library, NETS[0], seed=seed) for seed in range(5))


def test_c_runtime_model_swap(library: Libmemx, model: bytes, profile: ProfileName) -> None:
    """The weights of two networks once, then a model at a time."""
    opened(library)
    assert drive(library.memx_download_model(0, model, 0, WEIGHTS)) == Status.OK
    for turn in range(4 if profile == "strict" else 1):
        assert drive(library.memx_lock(0)) == Status.OK
        assert drive(library.memx_set_stream_disable(0, 1)) == Status.OK
        assert drive(library.memx_download_model(0, model, turn % 2, MODEL)) == Status.OK
        assert drive(library.memx_set_stream_enable(0, 0)) == Status.OK
        if profile == "strict":
            assert answered(library, NETS[turn % 2], seed=turn)
        else:  # 2.11.2 does nothing in the second download of a context, and says OK
            assert drive(library.memx_stream_ifmap(0, 0, frame(), 5)) == Status.INPUT_FLOW_NOT_CONFIGURED
        assert drive(library.memx_set_stream_disable(0, 1)) == Status.OK
        assert drive(library.memx_unlock(0)) == Status.OK


def test_c_device_selection(library: Libmemx, model: bytes, profile: ProfileName) -> None:
    """One context on whichever group is free; since 2.10 by a close and an open."""
    opened(library)
    for turn, group in enumerate((0, 1, 1, 0)):
        assert drive(library.memx_trylock(group)) == Status.OK
        if profile == "strict":
            assert drive(library.memx_reconfigure(0, group)) == Status.OK
        else:
            assert drive(library.memx_close(0)) == Status.OK
            assert drive(library.memx_open(0, group, CHIP_GENERATION)) == Status.OK
        assert drive(library.memx_download_model(0, model, 0, BOTH)) == Status.OK
        assert drive(library.memx_set_stream_enable(0, 0)) == Status.OK
        assert answered(library, NETS[0], seed=turn)
        assert drive(library.memx_set_stream_disable(0, 1)) == Status.OK
        assert drive(library.memx_unlock(group)) == Status.OK
