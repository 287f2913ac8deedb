"""What a simulated DSP is like: its firmware, its speed, its memory, and how it finds answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, final

from repertory.models.errors import ConfigError

__all__ = ["SimulatedC7x"]

_V2_CARVEOUT_MB: Final = 512
_U32: Final = 1 << 32


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedC7x:
    """Parameters of a simulated C7x that runs c7x_compute; milliseconds and megabytes, as in an address.

    Attributes:
        wire: which protocol the firmware speaks, 2 or 3.
        version: what it says of itself, 0xMMmmpp; None is 2.0.0 or 3.0.0, as `wire` has it.
        latency_ms: a job's time where the module's twin tells none.
        load_ms: fixed part of the time that loading a module or weights takes.
        load_mbs: MB/s (10^6 bytes) at which the rest of a load goes.
        tsc_mhz: the DSP's cycle counter.
        answers: `twin` computes the ONNX graph in the module; `hash` gives bytes that depend on the network's
            name and the input alone, for load tests.
        coherent: whether host and DSP see one memory. Without, a forgotten sync changes answers.
        first_fit: whether the carveout gives its lowest free stretch; else its highest, so that several
            buffers do not lie where firmware 2 expects them, while one of the whole carveout does.
        carveout_mb: MiB that host and DSP share.
        heap_mb: MiB of the DSP's own heap.
        workspace_mb: MiB that each module takes of that heap when it is loaded.
        uptime_ms: what the counter shows at the first boot; it wraps after 49 days.
        prints: text that every run of a module prints.
    """

    wire: Literal[2, 3] = 2
    version: int | None = None
    latency_ms: float = 1.0
    load_ms: float = 20.0
    load_mbs: float = 400.0
    tsc_mhz: float = 1000.0
    answers: Literal["twin", "hash"] = "twin"
    coherent: bool = True
    first_fit: bool = True
    carveout_mb: int = 512
    heap_mb: int = 352
    workspace_mb: int = 4
    uptime_ms: int = 0
    prints: str = ""

    def __post_init__(self) -> None:
        numbers = (self.latency_ms, self.load_ms, self.load_mbs, self.tsc_mhz)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ConfigError("a simulated C7x has finite times and rates >= 0")
        if not self.load_mbs or not self.tsc_mhz:
            raise ConfigError("a simulated C7x has load_mbs > 0 and tsc_mhz > 0")
        if self.wire not in {2, 3} or self.answers not in {"twin", "hash"}:
            raise ConfigError("a simulated C7x has wire 2 or 3, and answers twin or hash")
        if self.carveout_mb < (_V2_CARVEOUT_MB if self.wire == 2 else 1):  # noqa: PLR2004
            raise ConfigError("a simulated C7x has carveout_mb >= 1, and >= 512 with firmware 2")
        if self.heap_mb < 0 or self.workspace_mb < 0:
            raise ConfigError("a simulated C7x has heap_mb >= 0 and workspace_mb >= 0")
        if not (0 <= self.uptime_ms < _U32 and 0 <= (self.version or 0) < _U32):
            raise ConfigError("a simulated C7x has an uptime_ms and a version of 32 bits")

    @property
    def reported(self) -> int:
        """The version word of the firmware."""
        return self.wire << 16 if self.version is None else self.version

    def load_seconds(self, size: int) -> float:
        """Return how long it takes to load a file of that many bytes."""
        return self.load_ms / 1e3 + size / (self.load_mbs * 1e6)

    def job_seconds(self, latency: float | None) -> float:
        """Return how long one run takes; None is replaced by the default."""
        return self.latency_ms / 1e3 if latency is None else latency

    def cycles(self, seconds: float) -> int:
        """Return what the cycle counter gains meanwhile."""
        return round(seconds * self.tsc_mhz * 1e6)
