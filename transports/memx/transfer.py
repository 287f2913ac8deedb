"""One frame of one port on its way into the library, or out of it, with the fewest copies.

A frame whose bytes are the caller's own is copied once by `memx_stream_ifmap`, and nothing is to be
saved. One that has to be converted would be copied twice: where the library lends its buffers, it is
written into one of them, or read from one. A flow is used in one of the two ways, never in both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, final

import numpy as np

from repertory.models import formats
from repertory.models.formats import Bytes
from repertory.models.port import Port
from repertory.models.spec import Array
from repertory.transports.pump import NativeTimeout

from .checks import check
from .constants import Status
from .library import FmapBuffer, Libmemx

__all__ = ["ZERO_COPY", "GivenUp", "Transfer"]

ZERO_COPY: Final = frozenset(
    {
        "memx_dequeue_ifmap_buf",
        "memx_enqueue_ifmap_buf",
        "memx_dequeue_ofmap_buf",
        "memx_enqueue_ofmap_buf",
    }
)
"""What a library must export, whole, to lend its buffers; from version 2.10 on."""


@final
class GivenUp(Exception):
    """The streams were told to end instead of waiting on."""


@final
class Transfer:
    """The stream calls of one group, in short waits; one task writes, one reads.

    A call waits at most `timeout` at a time, and never 0, which libmemx takes for ever.

    Args:
        library: the lowest interface.
        timeout: what to ask for.
        zero_copy: whether buffers that the library lends may be used.

    Attributes:
        given_up: lets calls that have not come to their end raise GivenUp.
    """

    def __init__(self, library: Libmemx, timeout: NativeTimeout, *, zero_copy: bool) -> None:
        self.given_up = False
        self._library = library
        self._timeout = timeout
        self._zero_copy = zero_copy and library.exports >= ZERO_COPY
        self._scratch: dict[tuple[int, bool], Bytes] = {}

    async def send(self, model_id: int, port: Port, array: Array) -> None:
        """Send a caller's array.

        Raises:
            GivenUp: before the library took it.
            DeviceError: names the call that failed.
        """
        library, flow = self._library, port.number
        if self._lends(port):
            lent = await self._dequeue(library.memx_dequeue_ifmap_buf, model_id, port)
            port.encode(array, lent.data[: port.nbytes])
            await self._until(
                lambda wait: library.memx_enqueue_ifmap_buf(model_id, flow, lent, wait),
                "memx_enqueue_ifmap_buf",
            )
            return
        frame = self._frame(port, array)
        await self._until(
            lambda wait: library.memx_stream_ifmap(model_id, flow, frame, wait), "memx_stream_ifmap"
        )

    async def receive(self, model_id: int, port: Port) -> Array:
        """Receive an output's oldest frame, as an array of its own.

        Raises:
            GivenUp: before there was one.
            DeviceError: names the call that failed.
        """
        library, flow = self._library, port.number
        if self._lends(port):
            lent = await self._dequeue(library.memx_dequeue_ofmap_buf, model_id, port)
            try:
                return port.decode(lent.data[: port.nbytes])
            finally:
                await self._until(
                    lambda wait: library.memx_enqueue_ofmap_buf(model_id, flow, lent, wait),
                    "memx_enqueue_ofmap_buf",
                )
        array = port.empty()
        into = port.verbatim(array)
        buffer = self._buffer(port.nbytes, output=True) if into is None else into
        await self._until(
            lambda wait: library.memx_stream_ofmap(model_id, flow, buffer, wait), "memx_stream_ofmap"
        )
        return port.decode(buffer) if into is None else array

    async def times_out(self, model_id: int, port: Port, milliseconds: int) -> bool:
        """Wait once for an output while nothing is in flight, in the way that its frames are received.

        Returns:
            Whether the call timed out; else a stray frame was there, and was dropped.

        Raises:
            DeviceError: names the call that failed.
        """
        library, flow = self._library, port.number
        lent: FmapBuffer | None = None
        if self._lends(port):
            name = "memx_dequeue_ofmap_buf"
            status, lent = await library.memx_dequeue_ofmap_buf(model_id, flow, milliseconds)
        else:
            name, buffer = "memx_stream_ofmap", self._buffer(port.nbytes, output=True)
            status = await library.memx_stream_ofmap(model_id, flow, buffer, milliseconds)
        if status in _TIMEOUTS:
            return True
        check(status, name)
        if lent is not None:
            status = await library.memx_enqueue_ofmap_buf(model_id, flow, lent, milliseconds)
            check(status, "memx_enqueue_ofmap_buf")
        return False

    def _lends(self, port: Port) -> bool:
        """Whether a port's frames cross in the library's buffers."""
        return self._zero_copy and not _plain(port)

    async def _until(self, call: Callable[[int], Awaitable[int]], name: str) -> None:
        """Repeat a call until it does not time out."""
        while (status := await call(self._timeout.milliseconds)) in _TIMEOUTS:
            if self.given_up:
                raise GivenUp
        check(status, name)

    async def _dequeue(
        self,
        call: Callable[[int, int, int], Awaitable[tuple[int, FmapBuffer | None]]],
        model_id: int,
        port: Port,
    ) -> FmapBuffer:
        lent: FmapBuffer | None = None

        async def dequeue(wait: int) -> int:
            nonlocal lent
            status, lent = await call(model_id, port.number, wait)
            return status

        await self._until(dequeue, call.__name__)
        assert lent is not None, "the library lends a buffer where it returns OK"
        return lent

    def _frame(self, port: Port, array: Array) -> Array:
        """Return the frame: the caller's own memory, or memory to convert in."""
        frame = port.verbatim(array)
        if frame is None:
            frame = self._buffer(port.nbytes, output=False)
            port.encode(array, frame)
        return frame

    def _buffer(self, nbytes: int, *, output: bool) -> Bytes:
        """Return memory to convert in; the writer's and the reader's differ."""
        buffer = self._scratch.get((nbytes, output))
        if buffer is None:
            buffer = self._scratch[nbytes, output] = np.empty(nbytes, np.uint8)
        return buffer


_TIMEOUTS: Final = frozenset(
    {
        Status.INPUT_TIMEOUT,
        Status.OUTPUT_TIMEOUT,
        Status.DEQUEUE_INPUT_TIMEOUT,
        Status.DEQUEUE_OUTPUT_TIMEOUT,
    }
)


def _plain(port: Port) -> bool:
    """Whether a frame is the array itself, but for padding and the order of axes."""
    return formats.verbatim(port.format) and port.range_convert is None and port.hpoc is None
