"""The vendor's libmemx through ctypes, which releases the GIL during every call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_uint8, c_uint32, c_void_p
from typing import Any, Final, final

from repertory.models.errors import ConfigError
from repertory.models.spec import Array

from .library import FlowSize, Libmemx

__all__ = ["LIBRARY_NAMES", "CtypesLibmemx"]

LIBRARY_NAMES: Final = ("libmemx.so", "libmemx.so.2")
"""What the dynamic loader is asked for, in this order."""

_SIZE: Final = (c_uint8, c_uint8, *(POINTER(c_int32),) * 5)

_REQUIRED: Final[dict[str, tuple[Any, ...]]] = {
    "memx_trylock": (c_uint8,),
    "memx_unlock": (c_uint8,),
    "memx_open": (c_uint8, c_uint8, c_float),
    "memx_close": (c_uint8,),
    "memx_config_mpu_group": (c_uint8, c_uint8),
    "memx_set_ifmap_queue_size": (c_uint8, c_int32),
    "memx_set_ofmap_queue_size": (c_uint8, c_int32),
    "memx_download_model": (c_uint8, c_char_p, c_uint8, c_int32),
    "memx_set_stream_enable": (c_uint8, c_int32),
    "memx_set_stream_disable": (c_uint8, c_int32),
    "memx_get_ifmap_size": _SIZE,
    "memx_get_ofmap_size": _SIZE,
    "memx_stream_ifmap": (c_uint8, c_uint8, c_void_p, c_int32),
    "memx_stream_ofmap": (c_uint8, c_uint8, c_void_p, c_int32),
    "memx_get_total_chip_count": (c_uint8, POINTER(c_uint8)),
    "memx_operation_get_device_count": (POINTER(c_uint32),),
}
"""Argument types of what every supported library exports (headers of 2.11.2 and 2.12.1)."""

_OPTIONAL: Final[dict[str, tuple[Any, ...]]] = {
    "memx_reconfigure": (c_uint8, c_uint8),
}

_loaded: dict[tuple[str, ...], ctypes.CDLL] = {}
_loading = threading.Lock()


@final
class CtypesLibmemx(Libmemx):
    """The vendor's library; its methods block and never suspend, so `drive` runs them in driver threads.

    Loading probes every device node and fixes the table of groups, and unloading closes contexts, so a
    library is loaded once a process, when the first object is made for it, and never unloaded.

    Args:
        path: the library's file, or None for the names in LIBRARY_NAMES.

    Raises:
        ConfigError: there is no such library, or it is too old or foreign.
    """

    simulated = False

    def __init__(self, path: str | None = None) -> None:
        library = _load(LIBRARY_NAMES if path is None else (path,))
        self.version = _version(library)
        functions = {name: _bound(library, name, types) for name, types in (_REQUIRED | _OPTIONAL).items()}
        for name in _REQUIRED:
            if functions[name] is None:
                raise ConfigError(f"libmemx {self.version} lacks {name}: it is too old, or not libmemx")
        self.exports = frozenset(name for name in _OPTIONAL if functions[name] is not None)
        self._call: dict[str, Any] = functions

    async def memx_trylock(self, group_id: int) -> int:
        return self._status("memx_trylock", group_id)

    async def memx_unlock(self, group_id: int) -> int:
        return self._status("memx_unlock", group_id)

    async def memx_open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        return self._status("memx_open", model_id, group_id, chip_gen)

    async def memx_close(self, model_id: int) -> int:
        return self._status("memx_close", model_id)

    async def memx_reconfigure(self, model_id: int, group_id: int) -> int:
        self.require("memx_reconfigure")
        return self._status("memx_reconfigure", model_id, group_id)

    async def memx_config_mpu_group(self, group_id: int, mpu_group_config: int) -> int:
        return self._status("memx_config_mpu_group", group_id, mpu_group_config)

    async def memx_set_ifmap_queue_size(self, model_id: int, size: int) -> int:
        return self._status("memx_set_ifmap_queue_size", model_id, size)

    async def memx_set_ofmap_queue_size(self, model_id: int, size: int) -> int:
        return self._status("memx_set_ofmap_queue_size", model_id, size)

    async def memx_download_model(
        self,
        model_id: int,
        file_path: bytes,
        model_idx: int,
        type: int,  # noqa: A002  (the vendor's name)
    ) -> int:
        # A bytes object passes as its own address, NULs and all; `file_path` keeps it alive meanwhile.
        return self._status("memx_download_model", model_id, file_path, model_idx, type)

    async def memx_set_stream_enable(self, model_id: int, wait: int) -> int:
        return self._status("memx_set_stream_enable", model_id, wait)

    async def memx_set_stream_disable(self, model_id: int, wait: int) -> int:
        return self._status("memx_set_stream_disable", model_id, wait)

    async def memx_get_ifmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        return self._size("memx_get_ifmap_size", model_id, flow_id)

    async def memx_get_ofmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        return self._size("memx_get_ofmap_size", model_id, flow_id)

    async def memx_stream_ifmap(self, model_id: int, flow_id: int, ifmap: Array | None, timeout: int) -> int:
        return self._status("memx_stream_ifmap", model_id, flow_id, _address(ifmap), timeout)

    async def memx_stream_ofmap(self, model_id: int, flow_id: int, ofmap: Array | None, timeout: int) -> int:
        if ofmap is not None and not ofmap.flags.writeable:
            raise ValueError("libmemx would write into a read-only array")
        return self._status("memx_stream_ofmap", model_id, flow_id, _address(ofmap), timeout)

    async def memx_get_total_chip_count(self, group_id: int) -> tuple[int, int]:
        count = c_uint8()  # the library writes one byte here and four for the device count
        return self._status("memx_get_total_chip_count", group_id, byref(count)), count.value

    async def memx_operation_get_device_count(self) -> tuple[int, int]:
        count = c_uint32()
        return self._status("memx_operation_get_device_count", byref(count)), count.value

    def _status(self, name: str, *args: object) -> int:
        status: int = self._call[name](*args)
        return status

    def _size(self, name: str, model_id: int, flow_id: int) -> FlowSize:
        h, w, z, c, form = (c_int32() for _ in range(5))
        status = self._status(name, model_id, flow_id, byref(h), byref(w), byref(z), byref(c), byref(form))
        return status, h.value, w.value, z.value, c.value, form.value


def _load(names: Sequence[str]) -> ctypes.CDLL:
    key = tuple(names)
    with _loading:
        if key not in _loaded:
            _loaded[key] = _first(names)
        return _loaded[key]


def _first(names: Sequence[str]) -> ctypes.CDLL:
    reasons: list[str] = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise ConfigError(
        f"no MemryX library: looked for {' and '.join(names)} ({'; '.join(reasons)}). "
        "The vendor's package memx-drivers installs it."
    )


def _version(library: ctypes.CDLL) -> str:
    """Read LIB_VER, a `const char *` whose text is `libmemx_version: 2.11.2`."""
    try:
        text = c_char_p.in_dll(library, "LIB_VER").value or b""
    except ValueError:
        return "unknown"
    return text.decode("ascii", "replace").rpartition(":")[2].strip() or "unknown"


def _bound(library: ctypes.CDLL, name: str, argtypes: tuple[Any, ...]) -> Any:
    try:
        function = library[name]  # a new object, unlike attribute access: nobody else's types change
    except AttributeError:
        return None
    function.argtypes = argtypes
    function.restype = c_uint32
    return function


def _address(array: Array | None) -> int | None:
    """Return where the frame lies; about 1.5 us, and the array must outlive the call that uses it."""
    if array is None:
        return None
    if not array.flags.c_contiguous:
        raise ValueError("libmemx moves contiguous frames only")
    return array.ctypes.data
