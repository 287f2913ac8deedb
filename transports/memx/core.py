"""The simulated libmemx as a state machine: no input or output, no thread, and no clock of its own.

It behaves as the vendor documents ("strict"), with the numbers observed on libmemx 2.11.2. What the vendor
leaves undefined, or what hardware answers with garbage, a hang or a crash, is a `SimulatorFault`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from .board import Context, Group, Load
from .constants import (
    CONTEXTS,
    FLOWS,
    GROUP_CONFIGS,
    HALVES_CONFIG,
    QUEUE_SIZES,
    TIMEOUT_LIMIT_MS,
    DownloadType,
    Status,
)
from .flow import Flow
from .lane import Activity, Lane
from .rules import (
    SimulatorFault,
    StatusError,
    check_disabled,
    check_idle,
    check_placed,
    check_quiet,
    check_unfed,
)

if TYPE_CHECKING:
    from .image import ChipPort, Image
    from .parameters import SimulatedMx3

__all__ = ["Core", "Download"]


@final
@dataclass(frozen=True, slots=True)
class Download:
    """A download that is going on.

    Attributes:
        context: for whom.
        image: the file.
        model_idx: which of its models.
        kind: weights, model, or both.
        until: when it ends; never on a hung group.
        fails: whether it ends in DOWNLOAD_FAILED.
    """

    context: Context
    image: Image
    model_idx: int
    kind: DownloadType
    until: float
    fails: bool


@final
class Core:
    """Groups and contexts. Methods raise `StatusError` for what libmemx refuses."""

    def __init__(self, mx3: SimulatedMx3) -> None:
        self._mx3 = mx3
        self._groups = [Group(index, mx3.chips) for index in range(mx3.groups)]
        self._contexts: dict[int, Context] = {}
        self._failing_downloads = 0

    def advance(self, now: float) -> None:
        """Do all that happens by itself up to `now`."""
        for context in self._contexts.values():
            context.advance(now)

    def next_event(self, now: float) -> float:
        """Return when something next happens by itself, strictly after `now`; `math.inf` for never."""
        self.advance(now)
        return min((context.next_event() for context in self._contexts.values()), default=math.inf)

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return len(self._groups)

    def chip_count(self, group_id: int) -> int:
        """Return the chips of a group, whatever they are configured for."""
        return self._group(group_id).chips

    def trylock(self, group_id: int) -> None:
        """Take the advisory lock."""
        group = self._group(group_id)
        if group.locked:
            raise StatusError(Status.GROUP_IN_USE)
        group.locked = True

    def unlock(self, group_id: int) -> None:
        """Release the lock, held or not."""
        self._group(group_id).locked = False

    def config_mpu_group(self, group_id: int, config: int, now: float) -> None:
        """Set how many chips work together; what they held is gone, the contexts' shapes stay."""
        group = self._group(group_id)
        if not 0 <= config < len(GROUP_CONFIGS):
            raise StatusError(Status.BAD_ARGUMENT)
        if group.chips < GROUP_CONFIGS[config]:
            raise StatusError(Status.NOT_ENOUGH_CHIPS)
        check_idle(group, "memx_config_mpu_group", now)
        check_disabled(group.contexts.values(), "memx_config_mpu_group")
        group.configured = GROUP_CONFIGS[config] // (2 if config == HALVES_CONFIG else 1)
        group.forget()

    def hang(self, group_id: int, now: float) -> None:
        """Let everything on a group stand still for ever from `now` on."""
        self.advance(now)
        self._group(group_id).hung = True

    def fail_downloads(self, count: int) -> None:
        """Let the next `count` downloads end in DOWNLOAD_FAILED."""
        self._failing_downloads = count

    def open(self, model_id: int, group_id: int) -> None:
        """Open a context, or count one more use."""
        _check_model_id(model_id)
        group = self._group(group_id)
        context = self._contexts.get(model_id)
        if context is None:
            self._contexts[model_id] = Context(model_id, group)
        elif context.group is group:
            context.refs += 1
        else:
            raise StatusError(Status.CONTEXT_ON_OTHER_GROUP)

    def close_hangs(self, model_id: int) -> bool:
        """Whether a close would wait for transfers that never end."""
        context = self._contexts.get(model_id)
        return context is not None and context.refs == 1 and context.group.hung

    def close(self, model_id: int, now: float) -> None:
        """Count one use less; documented as harmless on a context that is not open."""
        _check_model_id(model_id)
        context = self._contexts.get(model_id)
        if context is None:
            return
        if context.refs > 1:
            context.refs -= 1
            return
        context.advance(now)
        check_quiet(context, "memx_close")
        context.leave()
        del self._contexts[model_id]

    def reconfigure(self, model_id: int, group_id: int, now: float) -> None:
        """Bind a context to a group; nothing is loaded afterwards, nor known to be on the chips."""
        context = self.context(model_id)
        group = self._group(group_id)
        context.advance(now)
        check_quiet(context, "memx_reconfigure")
        check_unfed(context, "memx_reconfigure")
        check_idle(group, "memx_reconfigure", now)
        check_disabled((context, *group.contexts.values()), "memx_reconfigure")
        context.bind(group)

    def set_ifmap_queue_size(self, model_id: int, size: int) -> None:
        """Store a size for the next download."""
        context = self.context(model_id)
        context.slots = (_queue_size(size), context.slots[1])

    def set_ofmap_queue_size(self, model_id: int, size: int) -> None:
        """Store a size for the next download."""
        context = self.context(model_id)
        context.slots = (context.slots[0], _queue_size(size))

    def enable(self, model_id: int, now: float) -> None:
        """Let frames move."""
        context = self.context(model_id)
        check_placed(context, "memx_set_stream_enable")
        context.advance(now)
        context.activity = Activity.RUNNING

    def disable(self, model_id: int, now: float, *, drain: bool) -> None:
        """Let no frame move any more, or with `drain` let those on the chips leave; see `settled`."""
        context = self.context(model_id)
        context.advance(now)
        if context.enabled:
            context.activity = Activity.DRAINING if drain else Activity.PAUSED
            context.advance(now)

    def settled(self, model_id: int, now: float) -> bool:
        """Whether a drain has ended, as nothing of the context moves; never on a hung group."""
        context = self._contexts.get(model_id)
        if context is None:
            return True
        context.advance(now)
        return not context.group.hung and context.activity is not Activity.DRAINING

    def begin_download(
        self, model_id: int, image: Image, model_idx: int, kind: DownloadType, now: float
    ) -> Download:
        """Begin to change what the group's chips hold; until it ends that is unknown."""
        context = self.context(model_id)
        group = context.group
        if kind & DownloadType.MODEL and model_idx not in image.models:
            raise StatusError(Status.DFP_BAD_CONTENT)
        if image.chips != group.configured:
            raise StatusError(Status.DOWNLOAD_FAILED)
        check_idle(group, "memx_download_model", now)
        others = (other for other in group.contexts.values() if other is not context)
        check_disabled(others, "memx_download_model")
        if kind & DownloadType.MODEL:
            check_unfed(context, "memx_download_model")
        until = math.inf if group.hung else now + self._mx3.download_seconds(image.weights, kind)
        return self._begin(Download(context, image, model_idx, kind, until, self._failing_downloads > 0))

    def _begin(self, download: Download) -> Download:
        group = download.context.group
        group.loading = download.context
        if download.fails:
            self._failing_downloads -= 1
            group.forget()
        if download.kind & DownloadType.WEIGHTS:
            group.weights = None
        if download.kind & DownloadType.MODEL:
            group.resident = None
        return download

    def end_download(self, download: Download, now: float) -> None:
        """Commit a download. One that failed, or was cut off, leaves unknown what the chips hold."""
        context, group = download.context, download.context.group
        group.loading = None
        if now < download.until:
            return
        if download.fails:
            raise StatusError(Status.DOWNLOAD_FAILED)
        if download.kind & DownloadType.WEIGHTS:
            group.weights = download.image
        if download.kind & DownloadType.MODEL:
            context.load = group.resident = self._load(download, now)
            context.unbound = False

    def _load(self, download: Download, now: float) -> Load:
        networks = download.image.models[download.model_idx]
        slots = download.context.slots
        lanes = (Lane(network, depth=self._mx3.depth, slots=slots, now=now) for network in networks)
        return Load(download.image, tuple(lanes))

    def flow_port(self, model_id: int, flow_id: int, *, output: bool) -> ChipPort:
        """Return what a flow is configured for."""
        if not 0 <= model_id < CONTEXTS:
            raise StatusError(Status.BAD_ENGINE)
        if model_id not in self._contexts:
            raise SimulatorFault(f"size of a flow of context {model_id}, which is not open: libmemx crashes")
        if (found := _find(self._contexts[model_id].load, flow_id, output=output)) is None:
            raise StatusError(Status.SIZE_UNKNOWN)
        return found[1]

    def flow(self, model_id: int, flow_id: int, timeout_ms: int, *, output: bool, null: bool) -> Flow:
        """Find the channel for a stream call, with its checks in the library's order."""
        context = self.context(model_id)
        load = context.load
        if load is not None and not 0 <= flow_id < FLOWS:
            raise StatusError(Status.BAD_FLOW_ID)
        if load is None or (found := _find(load, flow_id, output=output)) is None:
            raise StatusError(
                Status.OUTPUT_FLOW_NOT_CONFIGURED if output else Status.INPUT_FLOW_NOT_CONFIGURED
            )
        if null:
            raise StatusError(Status.NULL_POINTER)
        if not 0 <= timeout_ms < TIMEOUT_LIMIT_MS:
            raise StatusError(Status.BAD_ARGUMENT)
        return Flow(context, load, *found, output)

    def context(self, model_id: int) -> Context:
        """Return an open context."""
        _check_model_id(model_id)
        if model_id not in self._contexts:
            raise StatusError(Status.CONTEXT_NOT_OPEN)
        return self._contexts[model_id]

    def _group(self, group_id: int) -> Group:
        if not 0 <= group_id < len(self._groups):
            raise StatusError(Status.BAD_GROUP_ID)
        return self._groups[group_id]


def _check_model_id(model_id: int) -> None:
    if not 0 <= model_id < CONTEXTS:
        raise StatusError(Status.BAD_MODEL_ID)


def _queue_size(size: int) -> int:
    if size not in QUEUE_SIZES:
        raise StatusError(Status.BAD_QUEUE_SIZE)
    return size


def _find(load: Load | None, flow_id: int, *, output: bool) -> tuple[Lane, ChipPort] | None:
    if load is None:
        return None
    return (load.outputs if output else load.inputs).get(flow_id)
