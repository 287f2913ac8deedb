"""Builds `stub.c`: the vendor's library as C sees it, with any `XmediaCl` behind it."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Callable, Collection
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int64, c_void_p, create_string_buffer, string_at
from dataclasses import astuple
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

from repertory.transports.world import drive
from repertory.transports.xm_npu.cl.binding import CtypesXmediaCl
from repertory.transports.xm_npu.cl.library import InOut, MemInfo, Tensor, TensorBatch, XmediaCl
from repertory.transports.xm_npu.cl.loader import Revision
from repertory.transports.xm_npu.cl.signatures import NOTIFY

__all__ = ["SOURCE", "StubLibrary", "open_stub"]

SOURCE: Final = Path(__file__).with_name("stub.c")
FLAGS: Final = ("-Wall", "-Wextra", "-Werror", "-Wl,-Bsymbolic")  # many stubs in one process, all RTLD_GLOBAL

_HEAD, _PER, _HEADER = 4, 36, 16
_FLAT = POINTER(c_int64)
_BEHIND: Final = CFUNCTYPE(c_int64, c_char_p, _FLAT, _FLAT, _FLAT, _FLAT)

_ARGUMENTS: Final[dict[str, str]] = {
    "xmedia_sys_init": "",
    "xmedia_mmz_alloc": "ttn",
    "xmedia_mmz_free": "n",
    "xmedia_mmz_map": "nnb",
    "xmedia_mmz_unmap": "n",
    "xmedia_mmz_flush_cache": "nnn",
    "xmedia_mmz_virt_to_phy": "n",
    "xmedia_mmz_is_cached": "n",
    "xmedia_cl_release_device_ids": "l#",
    "xmedia_cl_create_context": "#l",
    "xmedia_cl_release_context": "n",
    "xmedia_cl_set_workspace_addr": "nnn",
    "xmedia_cl_get_workspace_addr": "n",
    "xmedia_cl_graph_querysize_from_file": "t",
    "xmedia_cl_graph_querysize_from_buff": "m",
    "xmedia_cl_graph_query_model_info_from_file": "tn",
    "xmedia_cl_graph_query_model_info_from_buff": "mn",
    "xmedia_cl_graph_get_private_data_from_file": "tn",
    "xmedia_cl_graph_get_private_data_from_buff": "mn",
    "xmedia_cl_graph_loadmodel_from_file": "nt",
    "xmedia_cl_graph_loadmodel_from_buff": "nm",
    "xmedia_cl_graph_loadmodel_from_file_withmem": "ntnnnn",
    "xmedia_cl_graph_loadmodel_from_buff_withmem": "nmnnnn",
    "xmedia_cl_graph_unload": "n",
    "xmedia_cl_graph_get_input": "nnI",
    "xmedia_cl_graph_get_output": "nnI",
    "xmedia_cl_graph_set_dynamic_batch_size": "nInn",
    "xmedia_cl_graph_set_inout": "nIO",
    "xmedia_cl_graph_process": "n",
    "xmedia_cl_graph_submit": "n",
    "xmedia_cl_graph_set_schedule_prio": "nn",
    "xmedia_cl_graph_get_memory_reuse_type": "n",
    "xmedia_cl_graph_get_private_data": "n",
    "xmedia_cl_graph_set_compress_config": "nnnn",
    "xmedia_cl_graph_communicate": "n",
    "xmedia_cl_graph_decommunicate": "nn",
    "xmedia_cl_set_profiling": "nnn",
    "xmedia_cl_wait_for_events": "l",
    "xmedia_cl_query_event_status": "n",
    "xmedia_cl_set_event_callback": "nnc",
    "xmedia_cl_release_event": "n",
}
"""n number, b bool, t text, m a model's bytes, l handles (number, whether they are there, three of them),
# their number again, c a callback, I and O flat tensors, which take no number. Those without a line take
nothing."""

_VALUES: Final = frozenset({"xmedia_mmz_alloc", "xmedia_mmz_map", "xmedia_cl_create_context"})
"""Functions that return something else than a status."""


_alive = list["StubLibrary"]()  # C may call them as long as the process lives


@final
class StubLibrary:
    """A stub library in a file of its own.

    Args:
        path: where the library is written.
        behind: what answers; its methods are run in the thread of the call.
        without: functions that it does not export.

    Attributes:
        path: of the library.
        errors: what was raised behind it: C cannot carry that, and gets -1.
    """

    def __init__(self, path: Path, behind: XmediaCl, *, without: Collection[str] = ()) -> None:
        path.write_bytes(_without(without))
        self.path = path
        self.errors: list[Exception] = []
        self._behind = behind
        self._kept: dict[bytes, Any] = {}
        self._callback = _BEHIND(self._called)
        _alive.append(self)
        pointer = c_void_p.in_dll(ctypes.CDLL(str(path)), "stub_behind")
        pointer.value = ctypes.cast(self._callback, c_void_p).value

    def open(self, *, revision: Revision | None = None) -> CtypesXmediaCl:
        """Return the real binding over it."""
        return CtypesXmediaCl(self.path, revision=revision, simulated=self._behind.simulated)

    def _called(self, name: bytes, given: Any, out: Any, one: Any, two: Any) -> int:
        try:
            if name == b"xmedia_cl_get_device_ids":
                return self._device_ids(given, out)
            return self._answer(name.decode(), given, out, (one, two))
        except Exception as error:  # noqa: BLE001
            self.errors.append(error)
            return -1

    def _answer(self, name: str, given: Any, out: Any, flats: tuple[Any, Any]) -> int:
        sides = [_read_io(flat) if flat else None for flat in flats]
        arguments = _Arguments(given, sides)
        taken = [arguments.take(code) for code in _ARGUMENTS.get(name, "")]
        answer: Any = drive(getattr(self._behind, name)(*taken))
        for io, flat in zip(sides, flats, strict=True):
            if io is not None:
                self._write_io(io, flat)
        return self._give(name, answer, out)

    def _give(self, name: str, answer: Any, out: Any) -> int:
        """Write what goes through pointers, and return what the function returns."""
        told: list[Any] = [*answer] if isinstance(answer, tuple) else [answer]
        value, through = (told[0], told[1:]) if name in _VALUES else (told[-1], told[:-1])
        numbers = list[int]()
        for each in through:
            if isinstance(each, bytes):
                numbers += [self._keep(each), len(each)]
            else:
                numbers += astuple(each) if isinstance(each, MemInfo) else [int(each)]
        for place, number in enumerate(numbers):
            out[place] = number
        return int(value or 0)

    def _device_ids(self, given: Any, out: Any) -> int:
        kind, there, number = given[0], given[1], given[2]
        devices = [0] * number if there else None
        found, status = drive(
            self._behind.xmedia_cl_get_device_ids(kind, devices, None if number < 0 else number)
        )
        for place, each in enumerate((found, *(devices or ()))):
            out[place] = each
        return status

    def _keep(self, data: bytes) -> int:
        """Return an address at which these bytes stay."""
        kept = self._kept.setdefault(data, create_string_buffer(data, len(data) + 1))
        return ctypes.addressof(kept)

    def _write_io(self, io: InOut, flat: Any) -> None:
        flat[0] = io.num
        for place in range(io.num):
            numbers = [0] * 34
            if io.tensor and place < len(io.tensor):
                numbers[:24] = self._numbers(io.tensor[place])
            if io.tensor_batch and place < len(io.tensor_batch):
                batch = io.tensor_batch[place]
                numbers[24:33] = [batch.batch_count, *batch.batch]
            if io.current_batch and place < len(io.current_batch):
                numbers[33] = io.current_batch[place]
            for at, number in enumerate(numbers, _HEAD + _PER * place):
                flat[at] = number

    def _numbers(self, tensor: Tensor) -> list[int]:
        scale = int.from_bytes(struct.pack("<f", tensor.scale), "little")
        name = 0 if tensor.name is None else self._keep(tensor.name)
        plain = [tensor.tensor_id, tensor.addr, tensor.ndims, *tensor.dims, *tensor.pch, tensor.type]
        return [*plain, scale, tensor.zp, tensor.size, name]


def open_stub(behind: XmediaCl, *, without: Collection[str] = ()) -> CtypesXmediaCl:
    """Return the real binding over a stub of its own, in front of any library; real time only."""
    with TemporaryDirectory() as folder:
        stub = StubLibrary(Path(folder) / "libxmedia_cl.so", behind, without=without)
        return stub.open()


@final
class _Arguments:
    """Takes one argument of a call after the other."""

    def __init__(self, given: Any, sides: list[InOut | None]) -> None:
        self._given = given
        self._sides = sides
        self._at = 0

    def take(self, code: str) -> object:
        if code in "IO":
            return self._sides["IO".index(code)]
        if code == "#":
            return self._given[0]
        if code == "l":
            number, there = self._next(), self._next()
            ids = [self._next() for _ in range(3)]
            return ids[:number] if there else None
        return _READERS[code](self._next())

    def _next(self) -> int:
        number: int = self._given[self._at]
        self._at += 1
        return number


def _model(address: int) -> bytes | None:
    """Read as much as the header promises, as the library does."""
    if not address:
        return None
    magic, _, head, tail = struct.unpack("<IIII", string_at(address, _HEADER))
    return string_at(address, head + tail if magic == 0x5A5A5A5A else _HEADER)


def _notify(address: int) -> object:
    if not address:
        return None
    called = NOTIFY(address)

    def notify(event: int, status: int) -> None:
        called(event, status, None)

    return notify


_READERS: Final[dict[str, Callable[[int], object]]] = {
    "n": int,
    "b": bool,
    "t": lambda address: string_at(address) if address else None,
    "m": _model,
    "c": _notify,
}


def _read_io(flat: Any) -> InOut:
    num, *there = flat[:_HEAD]
    rows = [flat[_HEAD + _PER * at : _HEAD + _PER * (at + 1)] for at in range(num)]
    return InOut(
        num,
        [_tensor(row) for row in rows] if there[0] else None,
        [TensorBatch(row[24], tuple(row[25:33])) for row in rows] if there[1] else None,
        [row[33] for row in rows] if there[2] else None,
    )


def _tensor(row: list[int]) -> Tensor:
    (scale,) = struct.unpack("<f", (row[20] & 0xFFFFFFFF).to_bytes(4, "little"))
    return Tensor(
        row[0],
        row[1],
        row[2],
        tuple(row[3:11]),
        tuple(row[11:19]),
        row[19],
        scale,
        row[21],
        row[22],
        string_at(row[23]) if row[23] else None,
    )


@cache
def _compiled() -> bytes:
    with TemporaryDirectory() as folder:
        library = Path(folder) / "libxmedia_cl.so"
        subprocess.run(["cc", "-shared", "-fPIC", *FLAGS, SOURCE, "-o", library], check=True)
        return library.read_bytes()


def _without(functions: Collection[str]) -> bytes:
    """Leave functions out by giving them other names: quicker than a compiler, and as good for a loader."""
    library = _compiled()
    for name in map(str.encode, functions):
        library = library.replace(b"\0" + name + b"\0", b"\0" + name.swapcase() + b"\0")
    return library
