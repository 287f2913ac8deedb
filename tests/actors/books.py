"""Frames without a runtime around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np

from repertory.models.program import Network
from repertory.models.spec import TensorSpec
from repertory.transports.frame import Frame, Outcome

__all__ = ["NETWORK", "Owner", "frame_of"]

NETWORK = Network(
    "net",
    (TensorSpec("x", ("N",), np.dtype(np.uint8)),),
    (TensorSpec("y", (4,), np.dtype(np.uint8)),),
)


@final
class Owner:
    """Keeps no books; tells whoever asked when a frame settles."""

    def __init__(self, settled: Callable[[Frame], None] = lambda _: None) -> None:
        self._settled = settled

    def settled(self, frame: Frame, /) -> None:
        self._settled(frame)

    def expire(self, frame: Frame, /) -> None:
        frame.settle(Outcome.EXPIRED)


def frame_of(
    *,
    seq: int = 0,
    deadline: float = math.inf,
    priority: int = 0,
    nbytes: int = 1,
    owner: Owner | None = None,
) -> Frame:
    """Return a frame as `Model.infer` would make it."""
    return Frame(
        owner or Owner(),
        NETWORK,
        (np.zeros(nbytes, np.uint8),),
        deadline=deadline,
        priority=priority,
        nbytes=nbytes,
        seq=seq,
    )
