"""The calls that have no time-out: open, bind, download, enable, disable, close. Driver code of one group."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, final

from repertory.models.errors import ArtifactError, DeviceBusy, DeviceError, DeviceHung, DeviceLost
from repertory.models.program import Program

from .constants import CHIP_GENERATION, GROUP_CONFIGS, DownloadType, Status, status_name
from .contexts import ContextTable
from .library import Libmemx
from .program import Loadable, loadable

__all__ = ["Control", "check", "failure"]

_log = logging.getLogger("repertory.memx")

_FILE_AT_FAULT: Final = frozenset(
    {
        Status.DFP_CANNOT_BE_OPENED,
        Status.DFP_READ_ERROR,
        Status.DFP_BAD_CONTENT,
        Status.DFP_VERSION_REFUSED,
        Status.INPUT_REFUSED,
    }
)


@final
@dataclass(slots=True, eq=False)
class _Context:
    """An open model context: one for each file, shared by the file's programs.

    Attributes:
        model_id: 0 to 31.
        programs: keys of programs that use it and are not done with.
        configuration: what is downloaded through it, or None.
    """

    model_id: int
    programs: set[str] = field(default_factory=set[str])
    configuration: int | None = None


@final
class Control:
    """Owns a group's contexts. Its methods run one after the other, and none while a frame is in flight.

    Args:
        library: the real one or a simulated one.
        group_id: which group.
        queue: slots of each flow's queue, at least 2; N slots hold N - 1 frames.
    """

    def __init__(self, library: Libmemx, group_id: int, *, queue: int) -> None:
        self._library = library
        self._group = group_id
        self._queue = queue
        self._table = ContextTable.of(library)
        self._contexts: OrderedDict[str, _Context] = OrderedDict()
        self._running: _Context | None = None
        self._holder: str | None = None
        self._chips = 0
        self._configured = 0
        self._locked = False

    async def open(self) -> int:
        """Find and lock the group; return how many chips it has.

        Raises:
            DeviceLost: there is no such group.
            DeviceBusy: somebody else holds its lock.
        """
        status, count = await self._library.memx_operation_get_device_count()
        check(status, "memx_operation_get_device_count")
        if self._group >= count:
            found = f"found {count}: 0 to {count - 1}" if count else "found none"
            raise DeviceLost(f"looked for MX3 device group {self._group}, {found}", family="memx")
        await self._lock()
        status, self._chips = await self._library.memx_get_total_chip_count(self._group)
        check(status, "memx_get_total_chip_count")
        return self._chips

    async def swap(self, program: Program) -> int:
        """Make a program run in place of what ran; return its model id."""
        image = loadable(program)
        await self._pause()
        known = image.file in self._contexts
        context = self._contexts.get(image.file) or await self._open_context(image.file)
        self._contexts.move_to_end(image.file)
        context.programs.add(program.key)
        try:
            await self._load(context, image, known=known)
        except ArtifactError:
            await self.free([program])
            raise
        check(await self._library.memx_set_stream_enable(context.model_id, 0), "memx_set_stream_enable")
        self._running = context
        return context.model_id

    async def _load(self, context: _Context, image: Loadable, *, known: bool) -> None:
        weights_stay = self._holder == image.file
        if known and await self._rebind(context, weights_stay=weights_stay):
            weights_stay = False
        if image.chips != self._configured:
            await self._configure(image.chips)
            weights_stay = False
        await self._download(context, image, weights_stay=weights_stay)
        await self._verify(context, image)

    async def free(self, programs: list[Program]) -> None:
        """Close the contexts that only these programs use."""
        for program in programs:
            file = loadable(program).file
            context = self._contexts.get(file)
            if context is None:
                continue
            context.programs.discard(program.key)
            if not context.programs:
                await self._close_context(file)

    async def close(self) -> None:
        """Close every context and unlock the group, whatever the library says to it."""
        for file in list(self._contexts):
            try:
                await self._close_context(file)
            except DeviceError as error:
                _log.warning("memx group %d: %s", self._group, error)
        if self._locked:
            self._locked = False
            self._table.locked.discard(self._group)
            await self._library.memx_unlock(self._group)

    async def _lock(self) -> None:
        status = await self._library.memx_trylock(self._group)
        if status == Status.GROUP_IN_USE:
            # libmemx 2.11.2 keeps its in-process mutex after a trylock that another process made fail
            await self._library.memx_unlock(self._group)
            raise self._held(status)
        check(status, "memx_trylock")
        self._locked = True
        self._table.locked.add(self._group)

    def _held(self, status: int) -> DeviceError:
        """Say who holds the lock: somebody else, or a call that hung when this process gave the device up."""
        group, locked = self._group, self._table.locked
        if group in locked:
            locked.discard(group)
            return DeviceHung(
                f"MX3 device group {group}: a call of this process to it has not returned",
                family="memx",
                call="memx_trylock",
                status=status,
            )
        return DeviceBusy(
            f"MX3 device group {group} is locked by another user of libmemx",
            family="memx",
            call="memx_trylock",
            status=status,
        )

    async def _pause(self) -> None:
        """Stop the running context for good: without the wait the next download may hang."""
        running, self._running = self._running, None
        if running is not None:
            check(await self._library.memx_set_stream_disable(running.model_id, 1), "memx_set_stream_disable")

    async def _open_context(self, file: str) -> _Context:
        if self._table.full and self._contexts:
            await self._close_context(next(iter(self._contexts)))  # the one whose turn is longest ago
        context = _Context(self._table.take())
        status = await self._library.memx_open(context.model_id, self._group, CHIP_GENERATION)
        if status != Status.OK:
            self._table.give_back(context.model_id)
            raise failure(status, "memx_open")
        self._contexts[file] = context
        await self._set_queues(context)
        return context

    async def _set_queues(self, context: _Context) -> None:
        """Set both sizes before the first download: later ones would wait for the next."""
        library, model_id, size = self._library, context.model_id, self._queue
        check(await library.memx_set_ifmap_queue_size(model_id, size), "memx_set_ifmap_queue_size")
        check(await library.memx_set_ofmap_queue_size(model_id, size), "memx_set_ofmap_queue_size")

    async def _rebind(self, context: _Context, *, weights_stay: bool) -> bool:
        """Make a context ready for a download; return whether the group's weights are lost by it.

        A library without `memx_reconfigure` (2.10 and later) does nothing on a download to the id that was
        downloaded to last: only a context that was closed and opened again takes one.
        """
        if "memx_reconfigure" in self._library.exports:
            if not weights_stay:
                check(await self._library.memx_reconfigure(context.model_id, self._group), "memx_reconfigure")
            return False
        if self._table.last_download != context.model_id:
            return False
        await self._reopen(context)
        return True

    async def _reopen(self, context: _Context) -> None:
        check(await self._library.memx_close(context.model_id), "memx_close")
        self._table.last_download = None
        status = await self._library.memx_open(context.model_id, self._group, CHIP_GENERATION)
        check(status, "memx_open")
        await self._set_queues(context)

    async def _configure(self, chips: int) -> None:
        if chips not in GROUP_CONFIGS:
            raise ArtifactError(f"the file is for {chips} chips; a group can be set to {GROUP_CONFIGS}")
        status = await self._library.memx_config_mpu_group(self._group, GROUP_CONFIGS.index(chips))
        check(status, "memx_config_mpu_group")
        self._configured = chips
        self._holder = None
        self._table.last_download = None

    async def _download(self, context: _Context, image: Loadable, *, weights_stay: bool) -> None:
        """Bring weights and model, or the model alone where the weights of the same file are there."""
        kind = DownloadType.MODEL if weights_stay else DownloadType.WEIGHTS_AND_MODEL
        self._holder = None
        status = await self._library.memx_download_model(
            context.model_id, image.data, image.configuration, kind | DownloadType.FROM_BUFFER
        )
        self._table.last_download = context.model_id
        if status in _FILE_AT_FAULT:
            raise ArtifactError(f"libmemx refuses the file: memx_download_model: {status_name(status)}")
        check(status, "memx_download_model")
        self._holder = image.file

    async def _verify(self, context: _Context, image: Loadable) -> None:
        """Compare what the library has configured with what the file says: a download can do nothing."""
        for ports in image.ports.values():
            for port in ports.inputs:
                size = await self._library.memx_get_ifmap_size(context.model_id, port.number)
                _compare(size, (*port.shape, port.format), f"memx_get_ifmap_size of port {port.number}")
            for port in ports.outputs:
                size = await self._library.memx_get_ofmap_size(context.model_id, port.number)
                _compare(size, (*port.shape, port.format), f"memx_get_ofmap_size of port {port.number}")

    async def _close_context(self, file: str) -> None:
        context = self._contexts.pop(file)
        if self._holder == file:
            self._holder = None
        try:
            if context is self._running:
                await self._pause()
        finally:
            await self._library.memx_close(context.model_id)
            self._table.give_back(context.model_id)


def failure(status: int, call: str) -> DeviceError:
    """Return the error for a status of libmemx."""
    return DeviceError(f"{call}: {status_name(status)}", family="memx", call=call, status=status)


def check(status: int, call: str) -> None:
    """Raise unless the status is OK.

    Raises:
        DeviceError: names the call and the status.
    """
    if status != Status.OK:
        raise failure(status, call)


def _compare(size: tuple[int, ...], wanted: tuple[int, ...], call: str) -> None:
    check(size[0], call)
    if size[1:] != wanted:
        raise DeviceError(
            f"{call}: the library has {size[1:]}, the file {wanted}: the download did nothing",
            family="memx",
            call=call,
        )
