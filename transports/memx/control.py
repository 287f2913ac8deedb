"""The calls that have no time-out: open, bind, download, enable, disable, close. Driver code of one group."""

from __future__ import annotations

import logging
from typing import final

from repertory.models.errors import ArtifactError, DeviceBusy, DeviceError, DeviceHung, DeviceLost
from repertory.models.program import Program

from .checks import check, check_file, check_size
from .constants import CHIP_GENERATION, GROUP_CONFIGS, DownloadType, Status
from .contexts import Context, ContextTable
from .features import GetFeature
from .health import read_feature
from .library import Libmemx
from .program import Loadable, loadable

__all__ = ["Control"]

_log = logging.getLogger("repertory.memx")


@final
class Control:
    """A group's contexts, one for each program. Its methods run one at a time, with no frame in flight.

    Alternating contexts is what makes swaps safe: a library that remembers the last download does nothing
    on another one to the same context. Contexts that do not run stay open, and move to another group of
    the process when their program does.

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
        self._running: Context | None = None
        self._configured = 0
        self._locked = False

    async def open(self) -> int:
        """Find and lock the group; return how many chips it has.

        Raises:
            DeviceLost: there is no such group.
            DeviceBusy: somebody else holds its lock.
            DeviceHung: a call of this process to it has not returned; only another process may try.
        """
        if self._group in self._table.hung:
            raise DeviceHung(
                f"MX3 device group {self._group}: a call of this process to it has not returned",
                family="memx",
            )
        status, count = await self._library.memx_operation_get_device_count()
        check(status, "memx_operation_get_device_count")
        if self._group >= count:
            found = f"found {count}: 0 to {count - 1}" if count else "found none"
            raise DeviceLost(
                f"looked for MX3 device group {self._group}, {found} when it was loaded", family="memx"
            )
        await self._lock()
        self._table.weights.pop(self._group, None)
        status, chips = await self._library.memx_get_total_chip_count(self._group)
        check(status, "memx_get_total_chip_count")
        return chips

    async def swap(self, program: Program) -> int:
        """Make a program run in place of what ran; return its model id."""
        image = loadable(program)
        await self._pause()
        context = self._table.claim(program.key, self._group)
        try:
            await self._place(context, program.key, image)
            await self._configure(image.chips)
            await self._download(context, image)
            await self._verify(context, image)
            self._table.weights[self._group] = image.file
            check(await self._library.memx_set_stream_enable(context.model_id, 0), "memx_set_stream_enable")
        except ArtifactError:
            await self._close(context)
            raise
        except DeviceError:
            self._leave(context)
            raise
        self._running = context
        return context.model_id

    async def free(self, programs: list[Program]) -> None:
        """Close the contexts of these programs."""
        keys = {program.key for program in programs}
        if self._running is not None and self._running.program in keys:
            await self._pause()
        for context in self._table.claim_idle(self._group, keys.__contains__):
            await self._close(context)

    async def close(self) -> None:
        """Close every context and unlock the group, whatever the library says to it."""
        try:
            await self._pause()
        except DeviceError as error:
            _log.warning("memx group %d: %s", self._group, error)
        for context in self._table.claim_idle(self._group, lambda _: True):
            await self._close(context)
        if self._locked:
            self._locked = False
            self._table.locked.discard(self._group)
            await self._library.memx_unlock(self._group)

    def hung(self) -> None:
        """Note that a call has not returned, and that nobody waits for it any more."""
        self._table.hung.add(self._group)

    # -- the lock ----------------------------------------------------------------------------------

    async def _lock(self) -> None:
        status = await self._library.memx_trylock(self._group)
        ours = self._group in self._table.locked
        if status != Status.OK and not ours:
            # libmemx 2.11.2 keeps its in-process mutex after a trylock that another process, or a lock
            # file that cannot be opened, made fail
            await self._library.memx_unlock(self._group)
        if status == Status.GROUP_IN_USE:
            user = "another device of this process" if ours else "another user of libmemx"
            raise DeviceBusy(
                f"MX3 device group {self._group} is locked by {user}",
                family="memx",
                call="memx_trylock",
                status=status,
            )
        check(status, "memx_trylock")
        self._locked = True
        self._table.locked.add(self._group)

    # -- contexts ----------------------------------------------------------------------------------

    async def _pause(self) -> None:
        """Stop the running context for good: without the wait the next download may hang."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            check(await self._library.memx_set_stream_disable(running.model_id, 1), "memx_set_stream_disable")
        finally:
            running.claimed = False

    async def _place(self, context: Context, program: str, image: Loadable) -> None:
        """Bind a context to this group, so that the next download to it does something."""
        if context.group is None:
            await self._open(context)
        elif context.program != program:
            await self._reopen(context)
        elif "memx_reconfigure" in self._library.exports:
            await self._reconfigure(context, image)
        elif context.group != self._group or self._table.spoiled(context):
            await self._reopen(context)
        context.program, context.file = program, image.file

    async def _reconfigure(self, context: Context, image: Loadable) -> None:
        """Bind anew; not between networks of one file, for nothing would be loaded afterwards."""
        here = context.group == self._group and not self._table.spoiled(context)
        if here and self._table.weights.get(self._group) == image.file:
            return
        check(await self._library.memx_reconfigure(context.model_id, self._group), "memx_reconfigure")
        self._table.bound(context, self._group)

    async def _reopen(self, context: Context) -> None:
        check(await self._library.memx_close(context.model_id), "memx_close")
        self._table.bound(context, None)
        await self._open(context)

    async def _open(self, context: Context) -> None:
        """Open a context, and set its queues before the first download: later sizes wait for the next."""
        library, model_id, slots = self._library, context.model_id, self._queue
        check(await library.memx_open(model_id, self._group, CHIP_GENERATION), "memx_open")
        self._table.bound(context, self._group)
        check(await library.memx_set_ifmap_queue_size(model_id, slots), "memx_set_ifmap_queue_size")
        check(await library.memx_set_ofmap_queue_size(model_id, slots), "memx_set_ofmap_queue_size")

    async def _close(self, context: Context) -> None:
        """Close a claimed context, whatever the library says to it, and give its number back."""
        if context.group is not None:
            await self._library.memx_close(context.model_id)
            self._table.bound(context, None)
        self._table.release(context)

    def _leave(self, context: Context) -> None:
        """Let go of a context that failed; the device is closed next, and with it all that are idle."""
        if context.group is None:
            self._table.release(context)
        context.claimed = False

    # -- what the chips hold -----------------------------------------------------------------------

    async def _configure(self, chips: int) -> None:
        if chips == self._configured:
            return
        if chips not in GROUP_CONFIGS:
            raise ArtifactError(f"the file is for {chips} chips; a group can be set to {GROUP_CONFIGS}")
        status = await self._library.memx_config_mpu_group(self._group, GROUP_CONFIGS.index(chips))
        check(status, "memx_config_mpu_group")
        self._configured = chips
        self._table.configured(self._group)

    async def _download(self, context: Context, image: Loadable) -> None:
        """Bring weights and model, or the model alone where the weights of the same file are there."""
        here = self._table.weights.pop(self._group, None) == image.file
        kind = DownloadType.MODEL if here else DownloadType.WEIGHTS_AND_MODEL
        with self._table.downloading(context):
            status = await self._library.memx_download_model(
                context.model_id, image.data, image.configuration, kind | DownloadType.FROM_BUFFER
            )
        check_file(status, "memx_download_model")
        await self._check_admin()

    async def _check_admin(self) -> None:
        """Ask for anything over the channel that weights take: that a load of them failed is not reported.

        Raises:
            DeviceError: the group does not answer there, so they may not have been loaded.
        """
        await read_feature(self._library, self._group, GetFeature.HW_INFO)

    async def _verify(self, context: Context, image: Loadable) -> None:
        """Compare what the library has configured with what the file says: a download can do nothing."""
        for ports in image.ports.values():
            for port in ports.inputs:
                size = await self._library.memx_get_ifmap_size(context.model_id, port.number)
                check_size(size, (*port.shape, port.format), f"memx_get_ifmap_size of port {port.number}")
            for port in ports.outputs:
                size = await self._library.memx_get_ofmap_size(context.model_id, port.number)
                check_size(size, (*port.shape, port.format), f"memx_get_ofmap_size of port {port.number}")
