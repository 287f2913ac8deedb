"""What the two processes say to each other: msgpack arrays of tagged arrays, a batch at a time.

Tensors do not travel here but for those whose size nobody knows beforehand (`Inline`); the others lie in
shared memory (`memory.py`). Files travel beside the message that needs them.
"""

from __future__ import annotations

from typing import TypeAlias, final

import msgspec

from repertory.transports.device import Capabilities, Health
from repertory.transports.frame import Fate

__all__ = [
    "Abandon",
    "Answer",
    "Bind",
    "Bound",
    "Close",
    "Closed",
    "Done",
    "Failure",
    "Faulted",
    "Inline",
    "Logged",
    "Open",
    "Opened",
    "Probe",
    "Probed",
    "Refused",
    "Request",
    "Run",
    "Share",
    "Ship",
    "ToChild",
    "ToParent",
]


@final
class Inline(msgspec.Struct, frozen=True, array_like=True):
    """A tensor that does not lie in shared memory: its extents are open."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@final
class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error on its way: the name of its class, and all that it holds."""

    kind: str
    message: str
    fields: dict[str, str | int | None]


# -- to the child


@final
class Open(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Make the device and open it; forward log records from `level` on. Answered by `Opened`."""

    serial: int
    level: int


@final
class Ship(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Read a model file: a sealed memfd comes along that holds `size` bytes, then the twin's, the sidecar's.

    `twin` and `sidecar` are sizes, or None without one; `native_outputs` is the artifact's own. What is wrong
    with the file is told at `Bind`.
    """

    key: str
    name: str
    network: str | None
    size: int
    twin: int | None
    sidecar: int | None
    native_outputs: bool = False


@final
class Bind(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Evict programs and make one resident, by their keys. Answered by `Bound`."""

    serial: int
    program: str | None
    evict: list[str]


@final
class Share(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Later frames lie in slots of so many bytes in the memfd that comes along."""

    slot_size: int


@final
class Run(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Start a frame; `number` names it from now on. Answered by `Done`.

    `inline` is empty where all inputs lie in the slot.
    """

    number: int
    program: str
    network: int
    slot: int
    inline: list[Inline | None]


@final
class Abandon(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Nobody waits for this frame any more."""

    number: int


@final
class Probe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Read the device's health. Answered by `Probed`."""

    serial: int


@final
class Close(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Close the device within `bound` seconds and end. Answered by `Closed`."""

    serial: int
    bound: float


Request: TypeAlias = Open | Bind | Probe | Close
ToChild: TypeAlias = Request | Ship | Share | Run | Abandon


# -- to the parent


@final
class Opened(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The device is open; `readings` are what its probe told at once."""

    serial: int
    capabilities: Capabilities
    readings: dict[str, float]


@final
class Bound(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The bind succeeded; with the window of what is resident now, if a program was named."""

    serial: int
    window: int | None


@final
class Probed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The device's health."""

    serial: int
    health: Health


@final
class Closed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The device is closed, every frame is done, and the process ends."""

    serial: int


@final
class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The request raised this."""

    serial: int
    failure: Failure


@final
class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The completion of a frame; `inline` is empty where all outputs lie in its slot."""

    number: int
    fate: Fate
    inline: list[Inline | None] = []
    failure: Failure | None = None
    busy: float = 0.0
    transfer: float = 0.0


@final
class Faulted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The device reports a fault."""

    failure: Failure


@final
class Logged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A log record."""

    logger: str
    level: int
    message: str


Answer: TypeAlias = Opened | Bound | Probed | Closed | Refused
ToParent: TypeAlias = Answer | Done | Faulted | Logged
