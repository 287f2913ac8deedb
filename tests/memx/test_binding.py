"""The ctypes binding against a library of C that notes what arrives and answers what it is told."""

from __future__ import annotations

import ctypes
import inspect
import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory.models.errors import ConfigError
from repertory.transports.memx.binding import LIBRARY_NAMES, LOG_LEVEL, CtypesLibmemx, shared_libmemx
from repertory.transports.memx.constants import Status, status_name
from repertory.transports.memx.contexts import ContextTable
from repertory.transports.memx.features import GetFeature, feature_bytes
from repertory.transports.memx.library import REQUIRED, FmapBuffer, Libmemx
from repertory.transports.memx.signatures import SIGNATURES
from repertory.transports.world import drive

from .stub import Stub

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
FRAME = np.array([[1.0, -2.0], [7.0, 4.0]], np.float32)
BYTES = np.array([0, 255, 0, 7], np.uint8)
LENT = FmapBuffer(999, BYTES)


@dataclass(frozen=True)
class Call:
    """One call, what the library must see of it, and what it gives back beside the status.

    Attributes:
        sees: the arguments as C prints them; bytes behind pointers in hexadecimal.
        writes: numbers that the library writes through its pointers.
        gives: what the method returns after the status, where it returns a tuple.
    """

    name: str
    args: tuple[Any, ...]
    sees: str
    writes: tuple[float, ...] = ()
    gives: tuple[Any, ...] | None = None


def settings(name: str) -> list[Call]:
    return [
        Call(name, (255, INT32_MIN), f"255 {INT32_MIN}"),
        Call(name, (0, INT32_MAX), f"0 {INT32_MAX}"),
        Call(name, (31, -1), "31 -1"),
    ]


CALLS = [
    *(
        Call(f"memx_{name}", (group,), str(group))
        for name in ("lock", "trylock", "unlock")
        for group in (0, 255)
    ),
    Call("memx_open", (31, 127, 31.0), "31 127 31"),
    Call("memx_open", (255, 0, -0.1), "255 0 -0.100000001"),
    Call("memx_close", (255,), "255"),
    Call("memx_reconfigure", (31, 254), "31 254"),
    *settings("memx_set_ifmap_queue_size"),
    *settings("memx_set_ofmap_queue_size"),
    *settings("memx_set_stream_enable"),
    *settings("memx_set_stream_disable"),
    Call("memx_set_abort_read", (255,), "255"),
    Call("memx_set_powerstate", (31, 4), "31 4"),
    Call("memx_get_chip_gen", (31,), "31", (255,), (255,)),
    Call("memx_operation", (31, 0xFFFFFFFF, BYTES.copy(), 4), "31 4294967295 00ff0007 4", (1, 0, 2)),
    Call("memx_operation", (0, 3, None, 0), "0 3 null 0"),
    Call("memx_download_model", (5, b"/a/model.dfp", 255, 3), "5 /a/model.dfp 255 3"),
    Call("memx_download_model", (5, b"\x06\x00\x00\xff", 0, 0x83), "5 060000ff 0 131"),
    Call("memx_download_model", (5, b"/a", 0, INT32_MIN), f"5 /a 0 {INT32_MIN}"),
    Call("memx_download_model_wtmem", (31, "/ü.dfp".encode()), "31 /ü.dfp"),
    Call("memx_download_model_config", (31, b"/b.dfp", 255), "31 /b.dfp 255"),
    Call("memx_get_ifmap_size", (31, 255), "31 255", (480, 640, 1, -3, 6), (480, 640, 1, -3, 6)),
    Call(
        "memx_get_ofmap_size",
        (255, 31),
        "255 31",
        (INT32_MIN, INT32_MAX, 2, 3, 0),
        (INT32_MIN, INT32_MAX, 2, 3, 0),
    ),
    Call("memx_get_ifmap_range_convert", (1, 2), "1 2", (1, -0.5, 127.5), (1, -0.5, 127.5)),
    Call("memx_get_ofmap_hpoc", (1, 31), "1 31", (5, 6, 70000), ((5, 6, 70000),)),
    Call("memx_get_ofmap_hpoc", (1, 0), "1 0", (), ((),)),
    Call("memx_stream_ifmap", (31, 255, FRAME, INT32_MIN), f"31 255 0000803f000000c0 {INT32_MIN}"),
    Call("memx_stream_ifmap", (0, 0, None, 0), "0 0 null 0"),
    Call("memx_stream_ofmap", (31, 255, FRAME.copy(), INT32_MAX), f"31 255 memory {INT32_MAX}"),
    Call("memx_stream_ofmap", (0, 0, None, -1), "0 0 null -1"),
    Call("memx_enqueue_ifmap_buf", (31, 30, LENT, -1), "31 30 4 999 foreign 00ff0007 -1"),
    Call("memx_enqueue_ofmap_buf", (31, 255, LENT, INT32_MAX), f"31 255 4 999 foreign 00ff0007 {INT32_MAX}"),
    Call("memx_dequeue_ifmap_buf", (31, 30, INT32_MIN), f"31 30 {INT32_MIN}", (), (None,)),
    Call("memx_dequeue_ofmap_buf", (31, 30, 0), "31 30 0", (), (None,)),
    Call("memx_config_mpu_group", (255, 7), "255 7"),
    Call("memx_get_total_chip_count", (127,), "127", (255,), (255,)),
    Call("memx_operation_get_device_count", (), "", (0xFEDCBA98,), (0xFEDCBA98,)),
    Call("memx_operation_get_mpu_group_count", (255,), "255", (0x01020304,), (0x01020304,)),
    Call("memx_get_feature", (1, 255, 6), "1 255 6", (0x72, 1), (b"\x72\x01" + bytes(6),)),
    Call("memx_get_feature", (1, 2, 11), "1 2 11", tuple(range(64)), (bytes(range(64)),)),
    Call("memx_get_feature", (1, 2, -1), "1 2 -1", (), (bytes(8),)),
    Call("memx_set_feature", (127, 255, 1, 65535), "127 255 1 65535"),
    Call("memx_enter_device_deep_sleep", (3,), "3"),
    Call("memx_exit_device_deep_sleep", (255,), "255"),
]

C_TYPES = {
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "float": ctypes.c_float,
    "text": ctypes.c_char_p,
    "void*": ctypes.c_void_p,
    "u8*": ctypes.POINTER(ctypes.c_uint8),
    "u32*": ctypes.POINTER(ctypes.c_uint32),
    "i32*": ctypes.POINTER(ctypes.c_int32),
    "i32**": ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)),
    "float*": ctypes.POINTER(ctypes.c_float),
}

HEADER = {
    "memx_lock": "u8",
    "memx_trylock": "u8",
    "memx_unlock": "u8",
    "memx_open": "u8 u8 float",
    "memx_close": "u8",
    "memx_reconfigure": "u8 u8",
    "memx_operation": "u8 u32 void* u32",
    "memx_download_model": "u8 text u8 i32",
    "memx_download_model_wtmem": "u8 text",
    "memx_download_model_config": "u8 text u8",
    "memx_set_stream_enable": "u8 i32",
    "memx_set_stream_disable": "u8 i32",
    "memx_set_ifmap_queue_size": "u8 i32",
    "memx_set_ofmap_queue_size": "u8 i32",
    "memx_get_ifmap_size": "u8 u8 i32* i32* i32* i32* i32*",
    "memx_get_ofmap_size": "u8 u8 i32* i32* i32* i32* i32*",
    "memx_get_ifmap_range_convert": "u8 u8 i32* float* float*",
    "memx_get_ofmap_hpoc": "u8 u8 i32* i32**",
    "memx_stream_ifmap": "u8 u8 void* i32",
    "memx_stream_ofmap": "u8 u8 void* i32",
    "memx_enqueue_ifmap_buf": "u8 u8 buf* i32",
    "memx_enqueue_ofmap_buf": "u8 u8 buf* i32",
    "memx_dequeue_ifmap_buf": "u8 u8 buf* i32",
    "memx_dequeue_ofmap_buf": "u8 u8 buf* i32",
    "memx_config_mpu_group": "u8 u8",
    "memx_get_chip_gen": "u8 u8*",
    "memx_get_total_chip_count": "u8 u8*",
    "memx_operation_get_device_count": "u32*",
    "memx_operation_get_mpu_group_count": "u8 u32*",
    "memx_set_powerstate": "u8 u8",
    "memx_enter_device_deep_sleep": "u8",
    "memx_exit_device_deep_sleep": "u8",
    "memx_get_feature": "u8 u8 i32 void*",
    "memx_set_feature": "u8 u8 i32 u16",
    "memx_set_abort_read": "u8",
}
"""The headers of libmemx 2.10 to 2.12, and `memx_reconfigure` of 2.2; written down again on purpose."""


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path / "whole")


@pytest.fixture
def library(stub: Stub) -> CtypesLibmemx:
    made = CtypesLibmemx(stub.path)
    assert [call.partition(" ")[0] for call in stub.calls()] == ["loaded"]
    return made


def made(library: Libmemx, call: Call) -> Any:
    """Make a call; return what the method returns."""
    method: Callable[..., Coroutine[Any, Any, Any]] = getattr(library, call.name)
    return drive(method(*call.args))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.name[5:]} {call.sees}".strip())
def test_arguments_arrive_and_what_is_written_comes_back(
    library: CtypesLibmemx, stub: Stub, call: Call
) -> None:
    stub.answer(call.name, Status.OK, *call.writes)
    result = made(library, call)
    assert result == (0 if call.gives is None else (0, *call.gives))
    assert stub.calls() == [f"{call.name} {call.sees}".rstrip() if call.sees else call.name]


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_every_status_comes_back_as_an_unsigned_number(library: CtypesLibmemx, stub: Stub, name: str) -> None:
    call = next(call for call in CALLS if call.name == name)
    for status in (*Status, 0x2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        stub.answer(name, status, *call.writes)
        result = made(library, call)
        assert (result if call.gives is None else result[0]) == status


def test_every_method_has_a_signature_and_a_call_here() -> None:
    methods = {name for name in Libmemx.__abstractmethods__ if name.startswith("memx_")}
    assert methods == set(Libmemx.__abstractmethods__) == set(SIGNATURES) == {call.name for call in CALLS}


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_signatures_are_those_of_the_header(name: str) -> None:
    types = HEADER[name].split()
    given = SIGNATURES[name]
    assert len(given) == len(types)
    for taken, wanted in zip(given, types, strict=True):
        if wanted == "buf*":
            fields = {field[0]: field[1] for field in taken._type_._fields_}
            assert fields == {"size": ctypes.c_size_t, "idx": ctypes.c_size_t, "data": ctypes.c_void_p}
            assert list(fields) == ["size", "idx", "data"]
        else:
            assert taken is C_TYPES[wanted]


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_methods_take_what_the_function_reads(name: str) -> None:
    """The arguments by their number: the others are pointers through which the function writes."""
    written = [kind for kind in HEADER[name].split() if kind.endswith("*")]
    given_by_caller = {"memx_operation": 1, "memx_stream_ifmap": 1, "memx_stream_ofmap": 1}
    given_by_caller |= {f"memx_enqueue_{flow}_buf": 1 for flow in ("ifmap", "ofmap")}
    parameters = len(inspect.signature(getattr(Libmemx, name)).parameters) - 1
    assert parameters == len(SIGNATURES[name]) - len(written) + given_by_caller.get(name, 0)


def test_frames_are_written_where_they_lie(library: CtypesLibmemx, stub: Stub) -> None:
    frame = FRAME.copy()
    stub.answer("memx_stream_ofmap", 0, 0, 0, 32, 64)
    assert drive(library.memx_stream_ofmap(1, 3, frame, 50)) == Status.OK
    assert frame.tolist() == [[2.5, -2.0], [7.0, 4.0]]
    data = BYTES.copy()
    stub.answer("memx_operation", 0, 9, 8)
    assert drive(library.memx_operation(1, 0, data, 4)) == Status.OK
    assert data.tolist() == [9, 8, 0, 7]


@pytest.mark.parametrize("flow", ["ifmap", "ofmap"])
def test_buffers_are_lent_and_given_back(library: CtypesLibmemx, stub: Stub, flow: str) -> None:
    dequeue = getattr(library, f"memx_dequeue_{flow}_buf")
    enqueue = getattr(library, f"memx_enqueue_{flow}_buf")
    stub.answer(f"memx_dequeue_{flow}_buf", Status.OK, 3, 2)
    status, lent = drive(dequeue(1, 2, 50))
    assert (status, lent.idx, lent.data.shape) == (Status.OK, 2, (3,))
    lent.data[:] = [1, 0, 254]
    stub.calls()
    assert drive(enqueue(1, 2, lent, 60)) == Status.OK
    assert stub.calls() == [f"memx_enqueue_{flow}_buf 1 2 3 2 lent 0100fe 60"]


def test_no_buffer_is_lent_by_a_call_that_failed(library: CtypesLibmemx, stub: Stub) -> None:
    stub.answer("memx_dequeue_ifmap_buf", Status.DEQUEUE_INPUT_TIMEOUT, 3, 2)
    assert drive(library.memx_dequeue_ifmap_buf(1, 2, 5)) == (Status.DEQUEUE_INPUT_TIMEOUT, None)


@pytest.mark.parametrize("opcode", GetFeature)
def test_as_many_bytes_come_as_a_feature_has(library: CtypesLibmemx, stub: Stub, opcode: GetFeature) -> None:
    stub.answer("memx_get_feature", Status.OK, *range(1, 65))
    status, data = drive(library.memx_get_feature(0, 0, opcode))
    wanted = {GetFeature.THROUGHPUT: 64, GetFeature.IFMAP_CONTROL: 4, GetFeature.QSPI_RESET_RELEASE: 4}
    assert (status, list(data)) == (Status.OK, list(range(1, 1 + wanted.get(opcode, 8))))
    assert len(data) == feature_bytes(opcode)


def test_memory_that_libmemx_would_spoil_is_refused(library: CtypesLibmemx, stub: Stub) -> None:
    frame = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match="contiguous"):
        drive(library.memx_stream_ifmap(0, 0, frame[:, :2], 1))
    with pytest.raises(ValueError, match="contiguous"):
        drive(library.memx_stream_ofmap(0, 0, frame.T[::2], 1))
    frame.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        drive(library.memx_stream_ofmap(0, 0, frame, 1))
    assert stub.calls() == []


def test_it_says_what_it_is(library: CtypesLibmemx) -> None:
    assert not library.simulated
    assert library.version == "2.11.2"
    assert library.exports == set(SIGNATURES) - REQUIRED


def test_a_library_is_loaded_once(tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    assert stub.calls() == []
    CtypesLibmemx(stub.path)
    CtypesLibmemx(stub.path)
    assert [call.partition(" ")[0] for call in stub.calls()] == ["loaded"]


def test_the_log_level_is_there_when_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_LEVEL, "3")
    as_it_was, chosen = Stub(tmp_path / "a"), Stub(tmp_path / "b")
    CtypesLibmemx(as_it_was.path)
    CtypesLibmemx(chosen.path, log_level=65535)
    assert as_it_was.calls() == ["loaded 3"]
    assert chosen.calls() == ["loaded 65535"]
    CtypesLibmemx(chosen.path, log_level=1)
    assert chosen.calls() == []  # it was loaded before
    assert os.environ[LOG_LEVEL] == "3"


def test_a_library_is_shared_however_its_path_is_spelled(tmp_path: Path) -> None:
    stub, other = Stub(tmp_path / "a"), Stub(tmp_path / "b")
    (tmp_path / "link.so").symlink_to(stub.path)
    (tmp_path / "other name.so").hardlink_to(stub.path)
    names = ("a/libmemx.so", "b/../a/libmemx.so", "link.so", "other name.so")
    pairs = itertools.product(names, (None, 1, 65535))
    libraries = {shared_libmemx(f"{tmp_path}/{name}", log_level=level) for name, level in pairs}
    assert len(libraries) == 1
    assert [call.partition(" ")[0] for call in stub.calls()] == ["loaded"]
    assert shared_libmemx(other.path) not in libraries


def test_a_library_is_shared_by_threads(tmp_path: Path) -> None:
    stub, count = Stub(tmp_path), 8
    for number in range(count):
        (tmp_path / f"link{number}.so").symlink_to(stub.path)
    start = threading.Barrier(count)

    def take(number: int) -> ContextTable:
        start.wait()
        return ContextTable.of(shared_libmemx(f"{tmp_path}/link{number}.so", log_level=number))

    with ThreadPoolExecutor(count) as threads:
        assert len(set(threads.map(take, range(count)))) == 1


def test_views_of_lent_buffers_are_not_kept_for_ever(library: CtypesLibmemx, stub: Stub) -> None:
    views: list[weakref.ref[Any]] = []
    for size in range(1, 4200):
        stub.answer("memx_dequeue_ofmap_buf", 0, size, 0)
        _, lent = drive(library.memx_dequeue_ofmap_buf(0, 0, 1))
        assert lent is not None
        views.append(weakref.ref(lent.data))
        del lent
    assert views[0]() is None
    assert views[-1]() is not None


@pytest.mark.parametrize("name", sorted(set(SIGNATURES) - REQUIRED))
def test_an_optional_function_is_absent(tmp_path: Path, name: str) -> None:
    library = CtypesLibmemx(Stub(tmp_path, without={name}).path)
    assert library.exports == set(SIGNATURES) - REQUIRED - {name}
    call = next(call for call in CALLS if call.name == name)
    with pytest.raises(ConfigError, match=rf"libmemx 2\.11\.2 does not export {name}$"):
        made(library, call)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_required_function_is_absent(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"libmemx 2\.11\.2 lacks {name}: "):
        CtypesLibmemx(Stub(tmp_path, without={name}).path)


def test_a_library_without_version(tmp_path: Path) -> None:
    assert CtypesLibmemx(Stub(tmp_path, without={"LIB_VER"}).path).version == "unknown"


def test_no_library(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere" / "libmemx.so")
    with pytest.raises(ConfigError, match=r"looked for .*nowhere.*memx-drivers"):
        CtypesLibmemx(path)


@pytest.mark.parametrize(
    ("there", "taken"), [(LIBRARY_NAMES, "libmemx.so"), (LIBRARY_NAMES[1:], "libmemx.so.2")]
)
def test_names_are_looked_for_in_order(tmp_path: Path, there: Sequence[str], taken: str) -> None:
    stubs = {name: Stub(tmp_path, name=name) for name in there}
    load = "from repertory.transports.memx.binding import CtypesLibmemx; CtypesLibmemx()"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", load], env=environment, check=True)
    assert {name for name, stub in stubs.items() if stub.calls()} == {taken}


MEANINGS = {
    0x00000000: "ok",
    0x00000001: "generic failure",
    0x00000002: "bad argument",
    0x00000005: "admin timeout",
    0x0000000A: "null pointer",
    0x11000000: "bad model id",
    0x11000001: "context not open",
    0x11000002: "nothing downloaded",
    0x11000003: "context bound to other group",
    0x12000000: "bad group id",
    0x12000001: "firmware too old",
    0x12000002: "group in use",
    0x12000003: "lock file cannot be opened",
    0x13000002: "bad engine or buffer",
    0x13000005: "bad command",
    0x13000006: "input flow not configured",
    0x13000007: "output flow not configured",
    0x13000008: "input shape or format refused",
    0x1300000C: "size unknown",
    0x1300000D: "range convert unknown",
    0x1300000E: "hpoc unknown",
    0x1300000F: "download failed",
    0x13000015: "bad flow id",
    0x1300001D: "output timeout",
    0x13000022: "input timeout (queue full)",
    0x13000024: "bad queue size",
    0x13000027: "dequeue input buffer timeout",
    0x13000028: "dequeue output buffer timeout",
    0x13020000: "DFP cannot be opened",
    0x13020001: "DFP read error",
    0x13020002: "DFP bad content",
    0x13020003: "DFP version not accepted",
    0x14000000: "transport open failed",
    0x14000003: "not enough chips",
    0x15000002: "ioctl failed",
}


@pytest.mark.parametrize("status", MEANINGS, ids=hex)
def test_a_status_is_named_by_its_meaning(status: int) -> None:
    assert status_name(status) == f"{MEANINGS[status]} (0x{status:08X})"


def test_no_status_is_without_a_meaning_here() -> None:
    assert set(map(int, Status)) == set(MEANINGS)
    assert status_name(0xF1000003) == "unknown status (0xF1000003)"
