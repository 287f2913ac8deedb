"""Downloads: they take time, may fail, and change what the chips of a group hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from repertory.transports.memx.constants import DownloadType, Status

from .board import Context, Group, Halt, Load
from .lane import Lane
from .profile import Trap
from .rules import SimulatorFault, StatusError, check_disabled, check_idle, check_unfed

if TYPE_CHECKING:
    from .core import Core
    from .image import Image

__all__ = ["Download", "Downloads"]


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
        spoils: whether its weights do not arrive, and nobody is told.
    """

    context: Context
    image: Image
    model_idx: int
    kind: DownloadType
    until: float
    fails: bool
    spoils: bool


@final
class Downloads:
    """Carries out downloads for a core.

    Attributes:
        failing: how many of the next downloads end in DOWNLOAD_FAILED.
        failing_weights: how many of the next weight loads fail underneath.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.failing = 0
        self.failing_weights = 0

    def claim(self, model_id: int) -> bool:
        """Whether a download to this context is carried out at all; see `Trap.LAST_DOWNLOAD`."""
        core = self._core
        core.context(model_id)
        if Trap.LAST_DOWNLOAD in core.mx3.traps and core.last_download == model_id:
            return False
        core.last_download = model_id
        return True

    def begin(self, model_id: int, image: Image, model_idx: int, kind: DownloadType, now: float) -> Download:
        """Begin to change what the group's chips hold; until it ends that is unknown."""
        context = self._core.context(model_id)
        group = context.group
        if kind & DownloadType.MODEL and model_idx not in image.models:
            raise StatusError(Status.DFP_BAD_CONTENT)
        self._check_chips(context, image)
        if Halt.GONE in group.halts:
            raise StatusError(Status.DOWNLOAD_FAILED)
        check_idle(group, "memx_download_model", now)
        others = (other for other in group.contexts.values() if other is not context)
        check_disabled(others, "memx_download_model")
        if kind & DownloadType.MODEL:
            check_unfed(context, "memx_download_model")
        return self._begin(context, image, model_idx, kind, now)

    def end(self, download: Download, now: float) -> None:
        """Commit a download. One that failed, or was cut off, leaves unknown what the chips hold."""
        context, group = download.context, download.context.group
        group.loading = None
        if now < download.until:
            return
        if download.fails:
            raise StatusError(Status.DOWNLOAD_FAILED)
        if download.kind & DownloadType.WEIGHTS:
            group.weights = download.image
            group.spoiled = download.spoils
        if download.kind & DownloadType.MODEL:
            context.load = group.resident = self._load(download, now)
            context.unbound = False
        self._core.downloaded = True

    def _check_chips(self, context: Context, image: Image) -> None:
        group = context.group
        if image.chips == group.configured:
            return
        whole = image.chips == group.configured * group.halves
        if Trap.HALVES in self._core.mx3.traps and whole and context.load is not None:
            raise SimulatorFault(
                "memx_download_model: a file for the whole of a halved group: libmemx crashes"
            )
        raise StatusError(Status.DOWNLOAD_FAILED)

    def _begin(
        self, context: Context, image: Image, model_idx: int, kind: DownloadType, now: float
    ) -> Download:
        mx3, group = self._core.mx3, context.group
        hung = Halt.HUNG in group.halts
        until = math.inf if hung else now + mx3.download_seconds(image.weights, kind)
        spoils = bool(kind & DownloadType.WEIGHTS) and self.failing_weights > 0
        told = spoils and Trap.UNREPORTED_WEIGHTS not in mx3.traps
        download = Download(context, image, model_idx, kind, until, told or self.failing > 0, spoils)
        self.failing_weights -= spoils
        self.failing -= self.failing > 0
        _unsettle(group, download)
        return download

    def _load(self, download: Download, now: float) -> Load:
        group, slots = download.context.group, download.context.slots
        networks = download.image.models[download.model_idx]
        if group.spoiled:
            networks = tuple(network.spoiled() for network in networks)
        depth = self._core.mx3.depth
        lanes = tuple(Lane(network, group.chips, depth=depth, slots=slots, now=now) for network in networks)
        for lane in lanes:
            lane.exit_bps = group.exit_bps
        return Load(download.image, lanes, slots)


def _unsettle(group: Group, download: Download) -> None:
    group.loading = download.context
    if download.fails:
        group.forget()
    if download.kind & DownloadType.WEIGHTS:
        group.weights = None
    if download.kind & DownloadType.MODEL:
        group.resident = None
