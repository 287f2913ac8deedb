"""The contexts that a script has open: how often, on which group, with which ports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from repertory.models.errors import ArtifactError
from repertory.models.formats import PortFormat, Shape, convertible
from repertory.models.port import Hpoc, Port, RangeConvert
from repertory.transports.memx.constants import CHIP_GENERATION, DownloadType, Status
from repertory.transports.memx.library import FlowSize, Libmemx
from repertory.transports.world import drive

__all__ = ["OpenContexts", "SetQueueSize"]

SetQueueSize: TypeAlias = Callable[[int, int], Coroutine[Any, Any, int]]
"""`memx_set_ifmap_queue_size` or `memx_set_ofmap_queue_size` of a library."""


@final
@dataclass(slots=True)
class _Context:
    """An open context.

    Attributes:
        ports: what was read since the last download, by flow and direction (output or not).
    """

    group_id: int
    uses: int = 0
    queue_sizes: dict[SetQueueSize, int] = field(default_factory=dict[SetQueueSize, int])
    ports: dict[tuple[int, bool], Port | None] = field(default_factory=dict[tuple[int, bool], Port | None])


@final
class OpenContexts:
    """Makes the calls that open, load and close contexts, and those that need one to be open.

    libmemx crashes where it is asked for the ports of a context that is not open. So uses are counted here,
    and a context counts as closed before its last close begins. All methods may be called from any thread.
    """

    def __init__(self, library: Libmemx) -> None:
        self._library = library
        self._guard = threading.Lock()
        self._contexts: dict[int, _Context] = {}

    def open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        """Open a context, or count one more use."""
        status = drive(self._library.memx_open(model_id, group_id, chip_gen))
        if status == Status.OK:
            with self._guard:
                self._contexts.setdefault(model_id, _Context(group_id)).uses += 1
        return status

    def close(self, model_id: int) -> int:
        """Count one use less; the last one frees the context."""
        with self._guard:
            context = self._contexts.get(model_id)
            if context is not None:
                context.uses -= 1
                if not context.uses:
                    del self._contexts[model_id]
        return drive(self._library.memx_close(model_id))

    def set_queue_size(self, call: SetQueueSize, model_id: int, size: int) -> int:
        """Set the queue size of one direction for the next download."""
        status = drive(call(model_id, size))
        context = self._contexts.get(model_id)
        if status == Status.OK and context is not None:
            context.queue_sizes[call] = size
        return status

    def download(self, model_id: int, file_path: bytes, model_idx: int, kind: DownloadType) -> int:
        """Bring weights, a model, or both; never left out because this context was the last one loaded.

        libmemx 2.11.2 returns OK without doing anything where the last download was to the same context.
        Any close makes it forget that, also one that only counts a use less.
        """
        context = self._contexts.get(model_id)
        if context is not None and self.open(model_id, context.group_id, CHIP_GENERATION) == Status.OK:
            self.close(model_id)
        try:
            return drive(self._library.memx_download_model(model_id, file_path, model_idx, kind))
        finally:
            self._forget_ports(model_id)

    def reconfigure(self, model_id: int, group_id: int) -> int:
        """Bind a context to a group; by closing and opening it where libmemx has lost the call."""
        try:
            if "memx_reconfigure" not in self._library.exports:
                return self._reopen(model_id, group_id)
            status = drive(self._library.memx_reconfigure(model_id, group_id))
            context = self._contexts.get(model_id)
            if status == Status.OK and context is not None:
                context.group_id = group_id
            return status
        finally:
            self._forget_ports(model_id)

    def size(self, model_id: int, flow_id: int, *, output: bool) -> FlowSize:
        """Read a flow's shape and format; CONTEXT_NOT_OPEN where libmemx would crash."""
        with self._guard:
            if model_id not in self._contexts:
                return Status.CONTEXT_NOT_OPEN, 0, 0, 0, 0, 0
            return self._size(model_id, flow_id, output=output)

    def port(self, model_id: int, flow_id: int, *, output: bool) -> Port | None:
        """Return a flow as a port, or None where there is none, or none that arrays can stand for."""
        context = self._contexts.get(model_id)
        if context is None:
            return None
        key = flow_id, output
        if key not in context.ports:
            with self._guard:
                if model_id in self._contexts:
                    context.ports[key] = self._port(model_id, flow_id, output=output)
        return context.ports.get(key)

    def _forget_ports(self, model_id: int) -> None:
        with self._guard:
            if model_id in self._contexts:
                self._contexts[model_id].ports.clear()

    def _reopen(self, model_id: int, group_id: int) -> int:
        context = self._contexts.get(model_id)
        if context is None:
            return Status.CONTEXT_NOT_OPEN
        status, groups = drive(self._library.memx_operation_get_device_count())
        if status == Status.OK and group_id >= groups:
            return Status.BAD_GROUP_ID  # found out by the open, it would cost the context
        uses = context.uses
        for _ in range(uses):
            self.close(model_id)
        for _ in range(uses):
            if status := self.open(model_id, group_id, CHIP_GENERATION):
                return status
        for call, size in context.queue_sizes.items():
            self.set_queue_size(call, model_id, size)
        return Status.OK

    def _size(self, model_id: int, flow_id: int, *, output: bool) -> FlowSize:
        library = self._library
        return drive(
            (library.memx_get_ofmap_size if output else library.memx_get_ifmap_size)(model_id, flow_id)
        )

    def _port(self, model_id: int, flow_id: int, *, output: bool) -> Port | None:
        status, height, width, z, channels, form = self._size(model_id, flow_id, output=output)
        if status:
            return None
        shape = (height, width, z, channels)
        try:
            port = Port(
                flow_id,
                format=PortFormat(form),
                shape=shape,
                range_convert=None if output else self._range_convert(model_id, flow_id),
                hpoc=self._hpoc(model_id, flow_id, shape) if output else None,
            )
        except (ArtifactError, ValueError):
            return None
        return port if convertible(port.format) else None

    def _range_convert(self, model_id: int, flow_id: int) -> RangeConvert | None:
        if "memx_get_ifmap_range_convert" not in self._library.exports:
            return None
        status, enable, shift, scale = drive(self._library.memx_get_ifmap_range_convert(model_id, flow_id))
        return RangeConvert(shift, scale) if not status and enable else None

    def _hpoc(self, model_id: int, flow_id: int, shape: Shape) -> Hpoc | None:
        if "memx_get_ofmap_hpoc" not in self._library.exports:
            return None
        status, dropped = drive(self._library.memx_get_ofmap_hpoc(model_id, flow_id))
        height, width, z, channels = shape
        return Hpoc((height, width, z, channels + len(dropped)), dropped) if not status and dropped else None
