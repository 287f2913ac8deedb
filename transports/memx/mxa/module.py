"""The vendor's Python module `mxa`, for scripts that were written for it: `from repertory import mxa`.

Names, arguments and their order are the vendor's, and so are the answers: every call returns libmemx's
status as an int, 0 for success, and raises for none of them. What differs is in docs/mxa.md.
"""

from __future__ import annotations

import itertools
import operator
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, final

import msgspec
import numpy as np

from repertory.models.errors import ConfigError
from repertory.models.spec import Array
from repertory.transports.address import Address
from repertory.transports.memx.binding import CtypesLibmemx
from repertory.transports.memx.constants import TIMEOUT_LIMIT_MS, DownloadType, Status
from repertory.transports.memx.library import FlowSize, Libmemx
from repertory.transports.memx.simulated import machine
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.real import RealWorld
from repertory.transports.world import drive

from .contexts import OpenContexts
from .files import verdict
from .frames import fits, read, written
from .locks import AdvisoryLocks

__all__ = ["ADDRESS", "SLICE_MS", "Mxa", "mxa"]

ADDRESS: Final = "REPERTORY_MXA"
"""Environment variable with the address of what `mxa` runs on; `memx://`, the card, without it."""

SLICE_MS: Final = 20
"""Milliseconds asked of one native wait. libmemx 2.11.2 takes eight to eleven times as long, and a Ctrl-C
comes through between two."""


@final
class Mxa:
    """The vendor's class `mxa`, whose one object of that name stands for the module.

    A number that its C type cannot hold is passed as one that libmemx refuses, and never wraps. Arrays hold
    the elements of (height, width, z, channels) in that order, in any shape of as many: float32, or uint8 at
    an RGB888 port without range conversion. They become frames of the port's format, and back. What does not
    fit is BAD_ARGUMENT, and None is NULL_POINTER.

    Calls may be made from several threads, as one writer and one reader for each flow.

    Args:
        source: the address to run on (`memx://?library=PATH`, `sim+memx://?chips=4`), the library itself, or
            None for the address in the environment. It is opened by the first call.
    """

    download_type_wtmem: Final = int(DownloadType.WEIGHTS)
    download_type_model: Final = int(DownloadType.MODEL)
    download_type_wtmem_and_model: Final = int(DownloadType.WEIGHTS_AND_MODEL)
    device_cascade: Final = 30
    device_cascade_plus: Final = 31

    def __init__(self, source: str | Libmemx | None = None) -> None:
        self._source = source
        self._opening = threading.Lock()
        self._parts: tuple[Libmemx, OpenContexts, AdvisoryLocks] | None = None

    def lock(self, group_id: int) -> int:
        """Take the advisory lock of a group, waiting for ever; a Ctrl-C ends the wait."""
        return int(self._locks.lock(_u8(group_id)))

    def trylock(self, group_id: int) -> int:
        """Take the advisory lock of a group, or return GROUP_IN_USE at once."""
        return int(self._locks.trylock(_u8(group_id)))

    def unlock(self, group_id: int) -> int:
        """Release the advisory lock of a group."""
        return int(self._locks.unlock(_u8(group_id)))

    def open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        """Open a context on a group, or count one more use of it; libmemx ignores `chip_gen`."""
        return int(self._contexts.open(_u8(model_id), _u8(group_id), float(chip_gen)))

    def close(self, model_id: int) -> int:
        """Count one use less; the last one frees the context. No error on one that is not open."""
        status = self._contexts.close(_u8(model_id))
        return 0 if status == Status.CONTEXT_NOT_OPEN else int(status)

    def reconfigure(self, model_id: int, group_id: int) -> int:
        """Bind a context to another group, with nothing loaded afterwards."""
        return int(self._contexts.reconfigure(_u8(model_id), _u8(group_id)))

    def config_mpu_group(self, group_id: int, mpu_group_config: int) -> int:
        """Choose how many chips work on one model: a MEMX_MPU_GROUP_CONFIG, 0 to 7."""
        return int(drive(self._library.memx_config_mpu_group(_u8(group_id), _u8(mpu_group_config))))

    def set_ifmap_queue_size(self, model_id: int, size: int) -> int:
        """Set the slots of each input flow from the next download on; N slots hold N - 1 frames."""
        call = self._library.memx_set_ifmap_queue_size
        return int(self._contexts.set_queue_size(call, _u8(model_id), _i32(size)))

    def set_ofmap_queue_size(self, model_id: int, size: int) -> int:
        """Set the slots of each output flow likewise."""
        call = self._library.memx_set_ofmap_queue_size
        return int(self._contexts.set_queue_size(call, _u8(model_id), _i32(size)))

    def download(
        self,
        model_id: int,
        file_path: str | os.PathLike[str],
        model_idx: int,
        type: int,  # noqa: A002  (the vendor's name)
    ) -> int:
        """Bring weights, a model, or both: one of `download_type_*`; 0 does nothing."""
        path, kind = os.fsencode(file_path), operator.index(type)
        if kind not in range(4):
            return int(Status.BAD_ARGUMENT)  # the other bits make of the path a pointer to something else
        if kind and not self._library.simulated and (status := verdict(path)):
            return int(status)
        return int(self._contexts.download(_u8(model_id), path, _u8(model_idx), DownloadType(kind)))

    def set_stream_enable(self, model_id: int, wait: int) -> int:
        """Let frames move. It never waits, whatever `wait` says: libmemx 2.11.2 would not return."""
        return int(drive(self._library.memx_set_stream_enable(_u8(model_id), 0)))

    def set_stream_disable(self, model_id: int, wait: int) -> int:
        """Let no frame move any more; with `wait` return only once none moves."""
        return int(drive(self._library.memx_set_stream_disable(_u8(model_id), int(bool(wait)))))

    def get_ifmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        """Return the status, height, width, z, channels and format of an input flow."""
        return _ints(self._contexts.size(_u8(model_id), _u8(flow_id), output=False))

    def get_ofmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        """Return the status, height, width, z, channels and format of an output flow."""
        return _ints(self._contexts.size(_u8(model_id), _u8(flow_id), output=True))

    def stream_ifmap(self, model_id: int, flow_id: int, ifmap: Array | None, timeout: int = 0) -> int:
        """Put a frame into an input flow's queue, waiting `timeout` ms while it is full; 0 is for ever."""
        context, flow = _u8(model_id), _u8(flow_id)
        port = self._contexts.port(context, flow, output=False)
        if port is None or ifmap is None:
            return self._write(context, flow, None, timeout)
        if not fits(ifmap, port):
            return int(Status.BAD_ARGUMENT)
        return self._write(context, flow, written(ifmap, port), timeout)

    def stream_ofmap(self, model_id: int, flow_id: int, ofmap: Array | None, timeout: int = 0) -> int:
        """Take an output flow's oldest frame into `ofmap`, waiting `timeout` ms for one; 0 is for ever."""
        context, flow = _u8(model_id), _u8(flow_id)
        port = self._contexts.port(context, flow, output=True)
        if port is None or ofmap is None:
            return self._read(context, flow, None, timeout)
        if not fits(ofmap, port) or not ofmap.flags.writeable:
            return int(Status.BAD_ARGUMENT)
        frame = np.empty(port.nbytes, np.uint8)
        status = self._read(context, flow, frame, timeout)
        if status == Status.OK:
            read(frame, port, ofmap)
        return status

    def _write(self, model_id: int, flow_id: int, frame: Array | None, timeout: int) -> int:
        call = self._library.memx_stream_ifmap
        return _in_slices(lambda wait: call(model_id, flow_id, frame, wait), timeout, Status.INPUT_TIMEOUT)

    def _read(self, model_id: int, flow_id: int, frame: Array | None, timeout: int) -> int:
        call = self._library.memx_stream_ofmap
        return _in_slices(lambda wait: call(model_id, flow_id, frame, wait), timeout, Status.OUTPUT_TIMEOUT)

    @property
    def _library(self) -> Libmemx:
        return self._open()[0]

    @property
    def _contexts(self) -> OpenContexts:
        return self._open()[1]

    @property
    def _locks(self) -> AdvisoryLocks:
        return self._open()[2]

    def _open(self) -> tuple[Libmemx, OpenContexts, AdvisoryLocks]:
        with self._opening:
            if self._parts is None:
                library = self._source if isinstance(self._source, Libmemx) else _library(self._source)
                self._parts = library, OpenContexts(library), AdvisoryLocks(library)
            return self._parts


mxa: Final = Mxa()
"""What `from repertory import mxa` gives."""


@final
class _Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `memx://` here: libmemx's path, or None for the loader's search path."""

    library: str | None = None


def _library(text: str | None) -> Libmemx:
    """Open what an address stands for; a simulator only where one is named."""
    address = Address.parse(text or os.environ.get(ADDRESS) or "memx://")
    match address.scheme:
        case "memx":
            return CtypesLibmemx(address.options(_Card).library)
        case "sim+memx":
            world = RealWorld()  # not entered: a simulator needs its clock, and no event loop
            return SimulatedLibmemx(world, machine(address))
        case scheme:
            raise ConfigError(f"{address.text}: mxa runs on memx:// or sim+memx://, not on {scheme}://")


def _in_slices(call: Callable[[int], Coroutine[Any, Any, int]], timeout: int, timed_out: Status) -> int:
    """Make a stream call of many short native waits, so that a Ctrl-C comes through; 0 is for ever."""
    whole = operator.index(timeout)
    if not 0 <= whole < TIMEOUT_LIMIT_MS:
        return int(drive(call(-1)))  # refused, after what libmemx checks before it
    waits = (min(SLICE_MS, whole - begun) for begun in range(0, whole, SLICE_MS))
    status = int(timed_out)
    for wait in waits if whole else itertools.repeat(SLICE_MS):
        status = int(drive(call(wait)))
        if status != timed_out:
            break
    return status


def _ints(size: FlowSize) -> FlowSize:
    status, height, width, z, channels, form = map(int, size)
    return status, height, width, z, channels, form


def _u8(value: int) -> int:
    """Return a number for C's uint8_t, or 255, which is no context, group, flow or model of libmemx."""
    number = operator.index(value)
    return number if 0 <= number <= 0xFF else 0xFF  # noqa: PLR2004


def _i32(value: int) -> int:
    """Return a number for C's int32_t, or -1, which is no size."""
    number = operator.index(value)
    return number if 0 <= number < 1 << 31 else -1
