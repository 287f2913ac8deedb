"""What stands before a device: addresses that lead nowhere; libraries, nodes and files that will not do."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeviceBusy,
    DeviceError,
    DeviceLost,
    RepertoryError,
)
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.transports.memx.lock import GroupLock
from repertory.transports.virtual import VirtualWorld
from tests.memx.files import Net, dfp
from tests.memx.nobody import nobody
from tests.memx.stub import Stub

from .support import image


@pytest.fixture(params=["process", "none"])
def isolation(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def shared_path() -> Iterator[Path]:
    """Return a folder that everybody can write to."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def _stub(folder: Path, without: Sequence[str] = ()) -> Stub:
    """Make a library that sees one group."""
    stub = Stub(folder, without=without)
    stub.answer("memx_operation_get_device_count", 0, 1)
    stub.answer("memx_get_total_chip_count", 0, 4)
    return stub


def _address(folder: Path, stub: Stub | str, isolation: str = "process", **options: str) -> str:
    library = stub if isinstance(stub, str) else stub.path
    where = f"library={library}&lock_dir={folder}&dev_dir={folder}&manager_dir={folder}&isolation={isolation}"
    return f"memx://0?{where}" + "".join(f"&{name}={value}" for name, value in options.items())


def _calls(stub: Stub) -> list[str]:
    """Return what was called, without what only looks at a group's health."""
    return [call for call in stub.calls() if not call.startswith(("memx_get_feature", "loaded"))]


async def _refused(*addresses: str) -> RepertoryError:
    with pytest.raises(RepertoryError) as caught:
        async with open_runtime(list(addresses)):
            pass
    return caught.value


async def test_a_twin_is_refused_before_any_call(
    isolation: str, tmp_path: Path, anyio_backend: object
) -> None:
    stub = _stub(tmp_path)
    address = _address(tmp_path, stub, isolation)
    async with open_runtime([address]) as rt:
        assert _calls(stub) == [
            "memx_operation_get_device_count",
            "memx_trylock 0",
            "memx_get_total_chip_count 0",
        ]
        with pytest.raises(ArtifactError, match="simulation twin"):
            await rt.load(dfp(Net()))
        assert _calls(stub) == []
        assert rt.models() == []
        assert not rt.statistics().groups[address].simulated
    assert _calls(stub) == ["memx_unlock 0"]


async def test_a_twin_goes_to_the_simulator_beside_real_hardware(
    tmp_path: Path, anyio_backend: object
) -> None:
    stub = _stub(tmp_path)
    async with open_runtime([_address(tmp_path, stub), "sim+memx://0"]) as rt:
        stub.calls()
        model = await rt.load(dfp(Net(outputs=1)))
        await model.infer(image(0))
        assert rt.statistics().models["net"].groups == ["sim+memx://0"]
        assert _calls(stub) == []


async def test_a_file_for_more_chips_than_there_are(
    isolation: str, tmp_path: Path, anyio_backend: object
) -> None:
    stub = _stub(tmp_path)
    async with open_runtime([_address(tmp_path, stub, isolation)]) as rt:
        with pytest.raises(ArtifactError, match="compiled for 8 chips, this group has 4"):
            await rt.load(dfp(Net(), chips=8, twins=False))
    assert not any(call.startswith("memx_open") for call in _calls(stub))


async def test_a_status_of_the_library_is_named_with_its_call(
    isolation: str, tmp_path: Path, anyio_backend: object
) -> None:
    stub = _stub(tmp_path)
    stub.answer("memx_open", 0xF1000003)
    async with open_runtime([_address(tmp_path, stub, isolation)]) as rt:
        model = await rt.load(dfp(Net(outputs=1), twins=False))
        with pytest.raises(DeviceError, match="memx_open: unknown status \\(0xF1000003\\)"):
            await model.infer(image(0), timeout=30)


async def test_a_missing_library_is_named(isolation: str, tmp_path: Path, anyio_backend: object) -> None:
    error = await _refused(_address(tmp_path, f"{tmp_path}/nowhere/libmemx.so", isolation))
    assert isinstance(error, ConfigError)
    assert f"looked for {tmp_path}/nowhere/libmemx.so" in str(error)
    assert "memx-drivers" in str(error)


async def test_a_missing_symbol_is_named(isolation: str, tmp_path: Path, anyio_backend: object) -> None:
    stub = _stub(tmp_path, without=["memx_unlock", "memx_close"])
    error = await _refused(_address(tmp_path, stub, isolation))
    assert isinstance(error, ConfigError)
    assert "libmemx 2.11.2 lacks memx_close, memx_unlock" in str(error)


@pytest.mark.parametrize("node", ["memx0", "memx0_feature", "memxchip0"])
async def test_a_node_without_permission_is_named(
    node: str, shared_path: Path, anyio_backend: object
) -> None:
    (shared_path / node).touch(mode=0)
    with nobody():
        error = await _refused(_address(shared_path, "/nowhere/libmemx.so", "none"))
    assert isinstance(error, DeviceLost)
    assert f"{shared_path}/{node}: no permission to read and write" in str(error)
    assert 'MODE="0666"' in str(error)


async def test_a_group_in_use_names_its_owner(isolation: str, tmp_path: Path, anyio_backend: object) -> None:
    stub, lock = _stub(tmp_path), GroupLock(tmp_path, 0)
    lock.acquire()
    error = await _refused(_address(tmp_path, stub, isolation))
    assert isinstance(error, DeviceBusy)
    assert f"in use by process {os.getpid()}" in str(error)
    lock.release()
    assert "memx_trylock 0" not in stub.calls()
    async with open_runtime([_address(tmp_path, stub, isolation)]):
        pass
    lock.acquire()
    lock.release()


async def test_a_card_of_the_daemon_is_refused_with_the_remedy(
    isolation: str, tmp_path: Path, anyio_backend: object
) -> None:
    stub = _stub(tmp_path)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "10000.sock"))
        daemon.listen()
        error = await _refused(_address(tmp_path, stub, isolation))
        assert isinstance(error, DeviceBusy)
        assert "mxa_manager" in str(error)
        assert "systemctl stop mxa-manager" in str(error)
        assert "force=true" in str(error)
        assert stub.calls() == []
        async with open_runtime([_address(tmp_path, stub, isolation, force="true")]):
            pass
    async with open_runtime([_address(tmp_path, stub, isolation)]):  # a socket that nobody serves any more
        pass
    assert _calls(stub).count("memx_trylock 0") == 2


async def test_the_log_level_reaches_the_library(
    isolation: str, tmp_path: Path, anyio_backend: object
) -> None:
    stub = _stub(tmp_path)
    async with open_runtime([_address(tmp_path, stub, isolation, log_level="65535")]):
        pass
    assert stub.calls()[0] == "loaded 65535"


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
