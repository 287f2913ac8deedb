"""The device contract: what every family implements, and the only thing the floors above know.

`null.py` is the smallest correct device, `conformance.py` the suite that every device passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import msgspec

from repertory.models.errors import DeviceError
from repertory.models.program import Artifact, Program
from repertory.models.spec import Array

from .frame import Fate, Frame

__all__ = ["Capabilities", "Completed", "Completion", "Device", "Fault", "Health", "Residency"]


@final
@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device can do; fixed once it is open.

    Attributes:
        family: `memx`, `cpu`, ... as in its address.
        simulated: whether no hardware stands behind it.
        window: frames that may be started and not completed, over all programs.
        residents: programs that may be resident at once.
        memory: bytes for resident programs, or None where the device sets no bound.
        bind_needs_idle: no frame may be in flight during `bind`.
        probe_needs_idle: likewise during `probe`; without it `probe` may be called beside every other call.
        lease_slots: device buffers that can be lent to callers; 0 for none.
        stall: seconds without any completion, while frames are in flight, after which its owner may take
            the device for hung; the least, whatever was learned.
    """

    family: str
    simulated: bool
    window: int
    residents: int
    memory: int | None = None
    bind_needs_idle: bool = True
    probe_needs_idle: bool = True
    lease_slots: int = 0
    stall: float = 10.0


@final
@dataclass(frozen=True, slots=True)
class Residency:
    """A program on the device, and how many of its frames may be started and not completed."""

    program: Program
    window: int


@final
class Completion(msgspec.Struct, frozen=True):
    """The end of one started frame: a msgspec struct, for one is made on every frame's way.

    Attributes:
        frame: the frame that was started.
        fate: what became of it.
        outputs: arrays in the order of the network's outputs, where `fate` is DONE.
        release: gives lent outputs back to the device; None where the arrays are the frame's own.
        error: why, where `fate` is not DONE.
        busy: seconds of the device's time that the frame took, as well as the driver can tell.
        transfer: seconds that moving its inputs to the device took, likewise.
    """

    frame: Frame
    fate: Fate
    outputs: tuple[Array, ...] = ()
    release: Callable[[], None] | None = None
    error: DeviceError | None = None
    busy: float = 0.0
    transfer: float = 0.0


@final
@dataclass(frozen=True, slots=True)
class Health:
    """One look at a device: named readings with their unit in the name (`temperature_k`)."""

    well: bool
    readings: Mapping[str, float] = field(default_factory=dict[str, float])


Completed: TypeAlias = Callable[[Sequence[Completion]], None]
Fault: TypeAlias = Callable[[DeviceError], None]


class Device(ABC):
    """One device group, used by one owner on the event loop's thread.

    Synchronous methods never block longer than about 50 us. A fault is sticky: once `fault` was called,
    every later call but `close`, `prepare` and `abandon` raises the same error.
    """

    capabilities: Capabilities

    @abstractmethod
    async def open(self, completed: Completed, fault: Fault) -> None:
        """Take the hardware; ends within its own bound. Afterwards `capabilities` is set.

        `completed` is called on the event loop with one completion for each started frame, in batches, in
        the order of starting for each network, and never from inside `start`; only frames that nobody waits
        for any more may come earlier. `fault` is called at most once, after the last `completed`, when the
        device became unusable: by then every started frame has its completion. A frame that is wanted and
        comes back UNDONE with DeviceLost or DeviceHung announces it.

        Raises:
            DeviceError: `DeviceBusy` where somebody else owns it, `DeviceLost` where it is not there.
        """

    @abstractmethod
    def prepare(self, artifact: Artifact) -> Program:
        """Read a model file for this device; on the host only, with nothing done to the hardware.

        May take long, and may be called from another thread than the event loop's.

        Raises:
            ArtifactError: it is no file for this device, or does not fit on it.
            UnknownModel: it does not hold the network that the artifact names.
        """

    @abstractmethod
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        """Evict, then make `program` resident. Shielded from cancellation, and bounded.

        With None it frees all that `evict` holds on the device, resident or not: those programs are done
        with. Otherwise what is evicted may come back soon, and the device may keep what makes that cheap.

        A failure leaves what was to be evicted gone, `program` not resident, and the device usable.

        Raises:
            NoRoom: its memory does not suffice at the moment, because of others or in pieces; the owner
                evicts one program more and tries again.
            ArtifactError: the device refuses this program.
            DeviceError: the device failed; `DeviceHung` and `DeviceLost` are faults.
        """

    @abstractmethod
    def start(self, frame: Frame) -> None:
        """Run a frame of a resident program, which `frame.program` names. The owner keeps the windows.

        Raises:
            ContractError: the network is not resident, or a window is full.
        """

    @abstractmethod
    def abandon(self, frame: Frame) -> None:
        """Tell that nobody waits for a started frame; a hint. Its completion still comes."""

    @abstractmethod
    async def probe(self) -> Health:
        """Read the device's health, within its own bound."""

    @abstractmethod
    async def close(self, *, bound: float) -> None:
        """Give the hardware back within `bound` seconds; from any state, any number of times.

        Frames in flight are completed first (DONE where their outputs still come, else UNDONE or FAILED).
        Shielded from cancellation. After it no `completed` and no `fault` is called.
        """
