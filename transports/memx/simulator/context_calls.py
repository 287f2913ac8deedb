"""The calls that open, set up, load, start and stop a model context."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from repertory.models.formats import Bytes
from repertory.transports.memx.constants import CHIP_GENERATION, DownloadType, Status

from .border import call, call_giving
from .machine import Machine
from .profile import Trap
from .rules import StatusError

__all__ = ["ContextCalls"]

_KINDS: Final = DownloadType.WEIGHTS_AND_MODEL | DownloadType.FROM_BUFFER


class ContextCalls(Machine):
    """A part of `Libmemx`."""

    @call
    async def memx_open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        return self._do(lambda _: self._core.open(model_id, group_id))

    @call
    async def memx_close(self, model_id: int) -> int:
        await self._until(lambda _: not self._core.close_hangs(model_id))
        return self._do(lambda now: self._core.close(model_id, now))

    @call
    async def memx_reconfigure(self, model_id: int, group_id: int) -> int:
        return self._do(lambda now: self._core.reconfigure(model_id, group_id, now))

    @call
    async def memx_set_ifmap_queue_size(self, model_id: int, size: int) -> int:
        return self._do(lambda _: self._core.set_ifmap_queue_size(model_id, size))

    @call
    async def memx_set_ofmap_queue_size(self, model_id: int, size: int) -> int:
        return self._do(lambda _: self._core.set_ofmap_queue_size(model_id, size))

    @call
    async def memx_set_abort_read(self, model_id: int) -> int:
        return self._do(lambda now: self._core.abort_read(model_id, now))

    @call
    async def memx_set_powerstate(self, model_id: int, state: int) -> int:
        return self._do(lambda now: self._core.set_powerstate(model_id, state, now))

    @call_giving(0)
    async def memx_get_chip_gen(self, model_id: int) -> tuple[int, int]:
        self._read(lambda _: self._core.context(model_id))
        return Status.OK, int(CHIP_GENERATION)

    @call
    async def memx_operation(self, model_id: int, cmd_id: int, data: Bytes | None, size: int) -> int:
        group = self._read(lambda _: self._admin.check_operation(model_id, cmd_id, data))
        assert data is not None, "NULL was refused"
        await self._command(group.index)
        return self._do(lambda now: self._admin.operate(group, cmd_id, data, now))

    @call
    async def memx_download_model(
        self,
        model_id: int,
        file_path: bytes,
        model_idx: int,
        type: int,  # noqa: A002  (the vendor's name)
    ) -> int:
        return await self._download(model_id, file_path, model_idx, DownloadType(type))

    @call
    async def memx_download_model_wtmem(self, model_id: int, file_path: bytes) -> int:
        return await self._download(model_id, file_path, 0, DownloadType.WEIGHTS)

    @call
    async def memx_download_model_config(self, model_id: int, file_path: bytes, model_idx: int) -> int:
        return await self._download(model_id, file_path, model_idx, DownloadType.MODEL)

    @call
    async def memx_set_stream_enable(self, model_id: int, wait: int) -> int:
        self._do(lambda now: self._core.enable(model_id, now))
        if wait and Trap.ENABLE_WAIT in self._core.mx3.traps:
            await self._until(lambda _: False)
        return Status.OK

    @call
    async def memx_set_stream_disable(self, model_id: int, wait: int) -> int:
        self._do(lambda now: self._core.disable(model_id, now, drain=bool(wait)))
        if wait:
            await self._until(lambda now: self._core.settled(model_id, now))
        return Status.OK

    async def _download(self, model_id: int, file_path: bytes, model_idx: int, kind: int) -> int:
        self._read(lambda _: self._core.context(model_id))
        if kind & ~_KINDS:
            return Status.BAD_ARGUMENT
        if kind & DownloadType.WEIGHTS_AND_MODEL and self._read(lambda _: self._downloads.claim(model_id)):
            await self._load(model_id, file_path, model_idx, DownloadType(kind))
        return Status.OK

    async def _load(self, model_id: int, file_path: bytes, model_idx: int, kind: DownloadType) -> None:
        image = self._images.read(_content(file_path, kind))
        download = self._read(lambda now: self._downloads.begin(model_id, image, model_idx, kind, now))
        try:
            await self._condition.wait(
                lambda: self._now() >= download.until, timeout=None, next_event=lambda: download.until
            )
        finally:
            self._do(lambda now: self._downloads.end(download, now))


def _content(file_path: bytes, kind: DownloadType) -> bytes:
    if kind & DownloadType.FROM_BUFFER:
        return file_path
    try:
        return Path(os.fsdecode(file_path)).read_bytes()
    except (OSError, ValueError) as error:
        raise StatusError(Status.DFP_CANNOT_BE_OPENED) from error
