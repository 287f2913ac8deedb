"""What a simulated NPU is like: its memory, its speed, its driver's and its library's ways."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal, final

from repertory.models.errors import ConfigError
from repertory.transports.xm_npu.cl.library import OPTIONAL

__all__ = ["PAGE", "SimulatedNpu", "Zone"]

PAGE: Final = 4096
"""Bytes in which memory is given."""

_MIB: Final = 1 << 20
_TIMES: Final = ("clock_mhz", "latency_ms", "floor_ms", "jiffy_ms", "load_ms", "drain_ms", "watchdog_ms")


@final
@dataclass(frozen=True, slots=True)
class Zone:
    """A stretch of physical memory that MMZ gives away.

    Attributes:
        name: at most 31 characters.
        base: physical address, whole pages.
        size: bytes, whole pages.
    """

    name: str = "anonymous"
    base: int = 0x42000000
    size: int = 96 * _MIB


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNpu:
    """Parameters of a simulated GK7206 NPU, of its driver of generation V500, and of its library.

    Attributes:
        zones: of memory.
        clock_mhz: of the NPU: a run takes its code's cycles at this clock.
        latency_ms: of a run whose code tells no cycles.
        floor_ms: the least time that a run takes.
        jiffy_ms: a job's end is seen only at multiples of this; 0 without such steps. Boards have 10.
        load_ms: time that the library takes to load a model. A GK7205V500 takes 715 to 790.
        drain_ms: how long DESTROY_QUEUE waits for the job that runs.
        watchdog_ms: after how long the library declares a running job dead.
        answers: `twin` computes the ONNX graph among the parameters; `hash` gives bytes that depend on the
            network's name and the input bytes alone, for load tests.
        present: whether the driver's nodes are there.
        privileged: whether this process has CAP_SYS_RAWIO.
        flushes: whether the library itself flushes inputs and invalidates outputs, as it may do.
        exports: functions of `cl.library.OPTIONAL` that the library has.
        devices: NPUs that the library tells of.
        any_device_list: whether a context may be made of a list without the CPU, as the page does it.
    """

    zones: tuple[Zone, ...] = field(default=(Zone(),))
    clock_mhz: float = 450.0
    latency_ms: float = 1.0
    floor_ms: float = 0.0
    jiffy_ms: float = 0.0
    load_ms: float = 0.0
    drain_ms: float = 10_000.0
    watchdog_ms: float = 100_000.0
    answers: Literal["twin", "hash"] = "twin"
    present: bool = True
    privileged: bool = True
    flushes: bool = False
    exports: frozenset[str] = OPTIONAL
    devices: int = 1
    any_device_list: bool = False

    def __post_init__(self) -> None:
        for name in _TIMES:
            if not (math.isfinite(value := getattr(self, name)) and value >= 0):
                raise ConfigError(f"a simulated NPU has a finite {name} >= 0, and not {value}")
        if not self.clock_mhz:
            raise ConfigError("a simulated NPU has clock_mhz > 0")
        if self.answers not in {"twin", "hash"}:
            raise ConfigError("a simulated NPU has answers twin or hash")
        if not self.zones or any(zone.base % PAGE or zone.size % PAGE for zone in self.zones):
            raise ConfigError("a simulated NPU has at least one zone, of whole pages")
        if unknown := self.exports - OPTIONAL:
            raise ConfigError(f"no function that may be missing: {', '.join(sorted(unknown))}")

    def seconds(self, cycles: int | None) -> float:
        """Return how long a run of so many cycles takes."""
        run = self.latency_ms / 1e3 if cycles is None else cycles / (self.clock_mhz * 1e6)
        return max(run, self.floor_ms / 1e3)

    def seen_at(self, end: float) -> float:
        """Return when what ends then is seen."""
        step = self.jiffy_ms / 1e3
        return math.ceil(end / step) * step if step else end
