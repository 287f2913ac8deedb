"""What stands before a device: addresses that lead nowhere; libraries, nodes and files that will not do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repertory.models.dfp import PACKED_BY
from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeviceBusy,
    DeviceError,
    DeviceLost,
    RepertoryError,
)
from repertory.runtime.runtime import Runtime, open_runtime
from repertory.transports.memx.lock import GroupLock
from repertory.transports.virtual import VirtualWorld
from tests.memx.files import Net, dfp
from tests.memx.test_binding import Stub

from .support import image


def _address(folder: Path, stub: Stub | str, group: int = 0) -> str:
    library = stub if isinstance(stub, str) else stub.path
    return f"memx://{group}?library={library}&lock_dir={folder}&dev_dir={folder}"


async def _refused(*addresses: str) -> RepertoryError:
    with pytest.raises(RepertoryError) as caught:
        async with open_runtime(list(addresses)):
            pass
    return caught.value


async def test_a_twin_is_refused_before_any_call(tmp_path: Path, anyio_backend: object) -> None:
    stub = Stub(tmp_path)
    async with open_runtime([_address(tmp_path, stub)]) as rt:
        assert stub.calls()[1:] == [
            "memx_operation_get_device_count",
            "memx_trylock 0",
            "memx_get_total_chip_count 0",
        ]
        with pytest.raises(ArtifactError, match="simulation twin"):
            await rt.load(dfp(Net()))
        assert stub.calls() == []
        assert rt.models() == []
        assert not rt.statistics().groups[_address(tmp_path, stub)].simulated
    assert stub.calls() == ["memx_unlock 0"]


async def test_a_twin_goes_to_the_simulator_beside_real_hardware(
    tmp_path: Path, anyio_backend: object
) -> None:
    stub = Stub(tmp_path)
    async with open_runtime([_address(tmp_path, stub), "sim+memx://0"]) as rt:
        stub.calls()
        model = await rt.load(dfp(Net(outputs=1)))
        await model.infer(image(0))
        assert rt.statistics().models["net"].groups == ["sim+memx://0"]
        assert stub.calls() == []


async def test_a_status_of_the_library_is_named_with_its_call(tmp_path: Path, anyio_backend: object) -> None:
    stub = Stub(tmp_path)
    content = dfp(Net(outputs=1), twins=False).replace(PACKED_BY.encode(), b"0" * len(PACKED_BY))
    async with open_runtime([_address(tmp_path, stub)]) as rt:
        model = await rt.load(content)
        with pytest.raises(DeviceError, match="memx_open: unknown status \\(0xF1000003\\)"):
            await model.infer(image(0), timeout=30)


async def test_a_missing_library_is_named(tmp_path: Path, anyio_backend: object) -> None:
    error = await _refused(_address(tmp_path, f"{tmp_path}/nowhere/libmemx.so"))
    assert isinstance(error, ConfigError)
    assert f"looked for {tmp_path}/nowhere/libmemx.so" in str(error)
    assert "memx-drivers" in str(error)


async def test_a_missing_symbol_is_named(tmp_path: Path, anyio_backend: object) -> None:
    error = await _refused(_address(tmp_path, Stub(tmp_path, "NO_UNLOCK")))
    assert isinstance(error, ConfigError)
    assert "libmemx 2.11.2 lacks memx_unlock" in str(error)


@pytest.mark.parametrize("node", ["memx0", "memxchip0"])
async def test_a_node_without_permission_is_named(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    (tmp_path / node).touch(mode=0)
    stub, access = Stub(tmp_path), os.access

    def denied(path: Path, mode: int) -> bool:
        """As it is for anybody but root, whom these tests may run as."""
        return Path(path).name != node and access(path, mode)

    monkeypatch.setattr(os, "access", denied)
    error = await _refused(_address(tmp_path, stub))
    assert isinstance(error, DeviceLost)
    assert f"{tmp_path}/{node}: no permission to read and write" in str(error)
    assert 'MODE="0666"' in str(error)
    assert stub.calls() == []


async def test_a_group_in_use_names_its_owner(tmp_path: Path, anyio_backend: object) -> None:
    stub, lock = Stub(tmp_path), GroupLock(tmp_path, 0)
    lock.acquire()
    error = await _refused(_address(tmp_path, stub))
    assert isinstance(error, DeviceBusy)
    assert f"in use by process {os.getpid()}" in str(error)
    lock.release()
    assert "memx_trylock 0" not in stub.calls()
    async with open_runtime([_address(tmp_path, stub)]):
        pass
    lock.acquire()
    lock.release()


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("sim+memx://3?groups=2", "group 3, found 2: 0 to 1"),
        ("sim+memx://128?groups=128", "group 128, found 128: 0 to 127"),
        ("sim+memx://0?groups=0", "group 0, found none"),
    ],
)
async def test_a_group_that_is_not_there(address: str, found: str, anyio_backend: object) -> None:
    with pytest.raises(DeviceLost, match=found):
        async with open_runtime([address], world=VirtualWorld()):
            pass


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("memx://one", "'one' is no group index"),
        ("sim+memx://0?chips=17", "chips"),
        ("sim+memx://0?swap=1", "swap"),
        ("memx://0?chips=4", "chips"),
    ],
)
async def test_a_wrong_address(address: str, complaint: str, anyio_backend: object) -> None:
    error = await _refused(address)
    assert isinstance(error, ConfigError)
    assert complaint in str(error)


@pytest.mark.virtual
async def test_hardware_refuses_virtual_time(anyio_backend: object) -> None:
    with pytest.raises(ConfigError, match=r"use sim\+memx"):
        async with open_runtime(["memx://0"], world=VirtualWorld()):
            pass


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "at byte"),
        (dfp(Net())[:200], "at byte"),
        (dfp(Net())[:-1], "at byte"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "version"),
        (dfp(Net(), twins=False), "twin="),
        (dfp(Net(), chips=8), "8 chips, this group has 4"),
    ],
)
async def test_a_bad_file_leaves_the_runtime_serving(
    content: bytes, complaint: str, anyio_backend: object
) -> None:
    async with open_runtime(["sim+memx://0"], world=VirtualWorld()) as rt:
        model = await rt.load(dfp(Net("good", outputs=1)))
        with pytest.raises(ArtifactError, match=complaint):
            await rt.load(content)
        await model.infer(image(0))
        assert _names(rt) == ["good"]


def _names(rt: Runtime) -> list[str]:
    return [model.name for model in rt.models()]
