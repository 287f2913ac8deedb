"""The vendor's libmemx through ctypes, which releases the GIL during every call."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_uint8, c_uint32, c_void_p
from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from repertory.models.errors import ConfigError
from repertory.models.formats import Bytes
from repertory.models.spec import Array

from .features import feature_bytes
from .library import REQUIRED, FlowSize, FmapBuffer, Libmemx
from .signatures import SIGNATURES, FmapBuf

__all__ = ["LIBRARY_NAMES", "LOG_LEVEL", "CtypesLibmemx", "shared_libmemx"]

LIBRARY_NAMES: Final = ("libmemx.so", "libmemx.so.2")
"""What the dynamic loader is asked for, in this order."""

LOG_LEVEL: Final = "MEMX_LOG_LEVEL"
"""Environment variable that the library reads while it is loaded: a bit mask, 65535 is all."""

_loaded: dict[tuple[str, ...], ctypes.CDLL] = {}
_shared: dict[int, CtypesLibmemx] = {}  # by handle
_loading = threading.Lock()


@final
class CtypesLibmemx(Libmemx):
    """The vendor's library; its methods block and never suspend, so `drive` runs them in driver threads.

    Loading probes every device node and fixes the table of groups, and unloading closes contexts, so a
    library is loaded once a process, when the first object is made for it, and never unloaded. A group
    that appears later is not seen, and one that vanishes stays in the count and fails to open.

    Args:
        path: the library's file, or None for the names in LIBRARY_NAMES.
        log_level: what LOG_LEVEL is set to before loading; None leaves it as it is. Nothing comes of it
            where the library was loaded before.

    Attributes:
        handle: the loader's for the library's file, the same for all spellings of its path.

    Raises:
        ConfigError: there is no such library, or it is too old or foreign.
    """

    simulated = False

    def __init__(self, path: str | None = None, *, log_level: int | None = None) -> None:
        library = _load(path, log_level)
        self.version = _version(library)
        found = frozenset(name for name in SIGNATURES if hasattr(library, name))
        if missing := sorted(REQUIRED - found):
            raise ConfigError(
                f"libmemx {self.version} lacks {', '.join(missing)}: it is too old, or not libmemx"
            )
        self.exports = found - REQUIRED
        self.handle: int = library._handle
        self._library = library
        self._functions: dict[str, Any] = {}

    async def memx_lock(self, group_id: int) -> int:
        return self._status("memx_lock", group_id)

    async def memx_trylock(self, group_id: int) -> int:
        return self._status("memx_trylock", group_id)

    async def memx_unlock(self, group_id: int) -> int:
        return self._status("memx_unlock", group_id)

    async def memx_open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        return self._status("memx_open", model_id, group_id, chip_gen)

    async def memx_close(self, model_id: int) -> int:
        return self._status("memx_close", model_id)

    async def memx_reconfigure(self, model_id: int, group_id: int) -> int:
        return self._status("memx_reconfigure", model_id, group_id)

    async def memx_set_ifmap_queue_size(self, model_id: int, size: int) -> int:
        return self._status("memx_set_ifmap_queue_size", model_id, size)

    async def memx_set_ofmap_queue_size(self, model_id: int, size: int) -> int:
        return self._status("memx_set_ofmap_queue_size", model_id, size)

    async def memx_set_abort_read(self, model_id: int) -> int:
        return self._status("memx_set_abort_read", model_id)

    async def memx_set_powerstate(self, model_id: int, state: int) -> int:
        return self._status("memx_set_powerstate", model_id, state)

    async def memx_get_chip_gen(self, model_id: int) -> tuple[int, int]:
        return self._number("memx_get_chip_gen", c_uint8(), model_id)

    async def memx_operation(self, model_id: int, cmd_id: int, data: Bytes | None, size: int) -> int:
        return self._status("memx_operation", model_id, cmd_id, _address(data), size)

    async def memx_download_model(
        self,
        model_id: int,
        file_path: bytes,
        model_idx: int,
        type: int,  # noqa: A002  (the vendor's name)
    ) -> int:
        # A bytes object passes as its own address, NULs and all; `file_path` keeps it alive meanwhile.
        return self._status("memx_download_model", model_id, file_path, model_idx, type)

    async def memx_download_model_wtmem(self, model_id: int, file_path: bytes) -> int:
        return self._status("memx_download_model_wtmem", model_id, file_path)

    async def memx_download_model_config(self, model_id: int, file_path: bytes, model_idx: int) -> int:
        return self._status("memx_download_model_config", model_id, file_path, model_idx)

    async def memx_set_stream_enable(self, model_id: int, wait: int) -> int:
        return self._status("memx_set_stream_enable", model_id, wait)

    async def memx_set_stream_disable(self, model_id: int, wait: int) -> int:
        return self._status("memx_set_stream_disable", model_id, wait)

    async def memx_get_ifmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        return self._size("memx_get_ifmap_size", model_id, flow_id)

    async def memx_get_ofmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        return self._size("memx_get_ofmap_size", model_id, flow_id)

    async def memx_get_ifmap_range_convert(
        self, model_id: int, flow_id: int
    ) -> tuple[int, int, float, float]:
        enable, shift, scale = c_int32(), c_float(), c_float()
        status = self._status(
            "memx_get_ifmap_range_convert", model_id, flow_id, byref(enable), byref(shift), byref(scale)
        )
        return status, enable.value, shift.value, scale.value

    async def memx_get_ofmap_hpoc(self, model_id: int, flow_id: int) -> tuple[int, tuple[int, ...]]:
        size, indexes = c_int32(), POINTER(c_int32)()
        status = self._status("memx_get_ofmap_hpoc", model_id, flow_id, byref(size), byref(indexes))
        return status, tuple(indexes[: size.value]) if indexes else ()  # the library's own array: copied

    async def memx_stream_ifmap(self, model_id: int, flow_id: int, ifmap: Array | None, timeout: int) -> int:
        return self._status("memx_stream_ifmap", model_id, flow_id, _address(ifmap), timeout)

    async def memx_stream_ofmap(self, model_id: int, flow_id: int, ofmap: Array | None, timeout: int) -> int:
        if ofmap is not None and not ofmap.flags.writeable:
            raise ValueError("libmemx would write into a read-only array")
        return self._status("memx_stream_ofmap", model_id, flow_id, _address(ofmap), timeout)

    async def memx_dequeue_ifmap_buf(
        self, model_id: int, flow_id: int, timeout: int
    ) -> tuple[int, FmapBuffer | None]:
        return self._dequeue("memx_dequeue_ifmap_buf", model_id, flow_id, timeout)

    async def memx_enqueue_ifmap_buf(
        self, model_id: int, flow_id: int, fmap_buf: FmapBuffer, timeout: int
    ) -> int:
        return self._enqueue("memx_enqueue_ifmap_buf", model_id, flow_id, fmap_buf, timeout)

    async def memx_dequeue_ofmap_buf(
        self, model_id: int, flow_id: int, timeout: int
    ) -> tuple[int, FmapBuffer | None]:
        return self._dequeue("memx_dequeue_ofmap_buf", model_id, flow_id, timeout)

    async def memx_enqueue_ofmap_buf(
        self, model_id: int, flow_id: int, fmap_buf: FmapBuffer, timeout: int
    ) -> int:
        return self._enqueue("memx_enqueue_ofmap_buf", model_id, flow_id, fmap_buf, timeout)

    async def memx_config_mpu_group(self, group_id: int, mpu_group_config: int) -> int:
        return self._status("memx_config_mpu_group", group_id, mpu_group_config)

    async def memx_get_total_chip_count(self, group_id: int) -> tuple[int, int]:
        # the library writes one byte here, and four for the other counts
        return self._number("memx_get_total_chip_count", c_uint8(), group_id)

    async def memx_operation_get_device_count(self) -> tuple[int, int]:
        return self._number("memx_operation_get_device_count", c_uint32())

    async def memx_operation_get_mpu_group_count(self, group_id: int) -> tuple[int, int]:
        return self._number("memx_operation_get_mpu_group_count", c_uint32(), group_id)

    async def memx_get_feature(self, group_id: int, chip_id: int, opcode: int) -> tuple[int, bytes]:
        buffer = ctypes.create_string_buffer(64)  # room for the largest, whatever a newer opcode writes
        status = self._status("memx_get_feature", group_id, chip_id, opcode, buffer)
        return status, buffer.raw[: feature_bytes(opcode)]

    async def memx_set_feature(self, group_id: int, chip_id: int, opcode: int, parameter: int) -> int:
        return self._status("memx_set_feature", group_id, chip_id, opcode, parameter)

    async def memx_enter_device_deep_sleep(self, group_id: int) -> int:
        return self._status("memx_enter_device_deep_sleep", group_id)

    async def memx_exit_device_deep_sleep(self, group_id: int) -> int:
        return self._status("memx_exit_device_deep_sleep", group_id)

    def _status(self, name: str, *args: object) -> int:
        function = self._functions.get(name) or self._bind(name)
        status: int = function(*args)
        return status

    def _bind(self, name: str) -> Any:
        """Bind a function at its first call."""
        if name not in REQUIRED:
            self.require(name)
        function = self._library[name]  # a new object, unlike attribute access: nobody else's types change
        function.argtypes = SIGNATURES[name]
        function.restype = c_uint32
        self._functions[name] = function
        return function

    def _number(self, name: str, number: c_uint8 | c_uint32, *args: int) -> tuple[int, int]:
        return self._status(name, *args, byref(number)), number.value

    def _size(self, name: str, model_id: int, flow_id: int) -> FlowSize:
        h, w, z, c, form = (c_int32() for _ in range(5))
        status = self._status(name, model_id, flow_id, byref(h), byref(w), byref(z), byref(c), byref(form))
        return status, h.value, w.value, z.value, c.value, form.value

    def _dequeue(self, name: str, model_id: int, flow_id: int, timeout: int) -> tuple[int, FmapBuffer | None]:
        lent = FmapBuf()
        status = self._status(name, model_id, flow_id, byref(lent), timeout)
        if status or not lent.data:
            return status, None
        return status, FmapBuffer(lent.idx, _memory(lent.data, lent.size))

    def _enqueue(self, name: str, model_id: int, flow_id: int, fmap_buf: FmapBuffer, timeout: int) -> int:
        data = fmap_buf.data
        lent = FmapBuf(data.nbytes, fmap_buf.idx, _address(data))
        return self._status(name, model_id, flow_id, byref(lent), timeout)


def shared_libmemx(path: str | None = None, *, log_level: int | None = None) -> CtypesLibmemx:
    """Return the one object that this process has for a library, however its path is spelled.

    Who shares a library must share its contexts, which are counted for each object. From any thread; may
    take as long as the library takes to load. Arguments and errors are those of `CtypesLibmemx`.
    """
    made = CtypesLibmemx(path, log_level=log_level)
    with _loading:
        return _shared.setdefault(made.handle, made)


def _load(path: str | None, log_level: int | None) -> ctypes.CDLL:
    key = LIBRARY_NAMES if path is None else (path,)
    with _loading:
        if key not in _loaded:
            with _environment(LOG_LEVEL, log_level):
                _loaded[key] = _first(key)
        return _loaded[key]


@contextmanager
def _environment(name: str, value: int | None) -> Generator[None]:
    """Set a variable meanwhile; None leaves it as it is."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = str(value)
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        elif value is not None:
            del os.environ[name]


def _first(names: Sequence[str]) -> ctypes.CDLL:
    reasons: list[str] = []
    for name in names:
        try:
            return _open(name)
        except OSError as error:
            reasons.append(str(error))
    raise ConfigError(
        f"no MemryX library: looked for {' and '.join(names)} ({'; '.join(reasons)}). "
        "The vendor's package memx-drivers installs it."
    )


def _open(name: str) -> ctypes.CDLL:
    """Load a library, or find it loaded.

    `ctypes.CDLL` holds the GIL while the library's constructors run (observed on Python 3.11). The loader's
    own function, called as any other of C, does not, and whatever hangs there leaves all other threads alone.
    """
    dlopen = ctypes.CDLL(None)["dlopen"]
    dlopen.argtypes, dlopen.restype = [c_char_p, c_int], c_void_p
    dlopen(os.fsencode(name), os.RTLD_NOW)
    return ctypes.CDLL(name)  # loaded by now; where it failed, it fails again and says why


def _version(library: ctypes.CDLL) -> str:
    """Read LIB_VER, a `const char *` whose text is `libmemx_version: 2.11.2`."""
    try:
        text = c_char_p.in_dll(library, "LIB_VER").value or b""
    except ValueError:
        return "unknown"
    return text.decode("ascii", "replace").rpartition(":")[2].strip() or "unknown"


@lru_cache(maxsize=4096)  # every context that is opened may bring new addresses
def _memory(address: int, size: int) -> Bytes:
    """View memory that the library owns; there are few buffers, and making a view takes 10 us."""
    return np.ctypeslib.as_array((c_uint8 * size).from_address(address))


def _address(array: Array | None) -> int | None:
    """Return where the frame lies; about 1.5 us, and the array must outlive the call that uses it."""
    if array is None:
        return None
    if not array.flags.c_contiguous:
        raise ValueError("libmemx moves contiguous frames only")
    return array.ctypes.data
