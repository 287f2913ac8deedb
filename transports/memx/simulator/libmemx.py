"""The simulated libmemx: the state machine of `core.py` in a world, with answers from twins or hashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, final

from repertory.models.formats import Bytes
from repertory.transports.world import World

from .border import Call, Record
from .context_calls import ContextCalls
from .group_calls import GroupCalls
from .parameters import SimulatedMx3
from .stream_calls import StreamCalls
from .switches import Switches

__all__ = ["Call", "Record", "SimulatedLibmemx", "Tamper"]

Tamper: TypeAlias = Callable[[int, int, memoryview], None]
"""Gets model id, flow id and the bytes of an output frame, writable, as it crosses to the caller."""


@final
class SimulatedLibmemx(GroupCalls, ContextCalls, StreamCalls, Switches):
    """A libmemx with simulated device groups, in threads or in virtual time.

    Twins compute in the thread that reads the output, while nothing is held: in the real world a frame's
    latency is the larger of the model's and the twin's; in a virtual world computing takes no time.

    Args:
        world: where it runs; entered before.
        mx3: what is simulated.
        record: told of every call that returns, such as a list's `append`; or None.
        tamper: see below.

    Attributes:
        tamper: may alter output frames; or None.
    """

    simulated = True
    version = "simulated"

    def __init__(
        self,
        world: World,
        mx3: SimulatedMx3 | None = None,
        *,
        record: Record | None = None,
        tamper: Tamper | None = None,
    ) -> None:
        super().__init__(world, mx3 or SimulatedMx3(), record)
        self.tamper = tamper

    def _alter(self, model_id: int, flow_id: int, frame: Bytes) -> None:
        if self.tamper is not None:
            self.tamper(model_id, flow_id, frame.data)
