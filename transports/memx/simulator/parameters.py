"""What a simulated MX3 is like: its size, its speed, and how it finds answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, final

from repertory.models.errors import ConfigError
from repertory.transports.memx.constants import DownloadType

from .heat import Heat
from .profile import PROFILES, ProfileName, Trap

__all__ = ["MODEL_SHARE", "SimulatedMx3"]

MODEL_SHARE: Final = 0.2
"""Part of a swap's fixed cost that the model alone takes; the weights take the rest, and the transfer."""

_ZERO_COPY: Final = tuple(
    f"memx_{way}_{side}_buf" for way in ("enqueue", "dequeue") for side in ("ifmap", "ofmap")
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMx3:
    """Parameters of the simulated device groups; milliseconds and megabytes, as in an address.

    The vendor publishes no swap time: the defaults follow from full weights (42 MB on four chips) over a
    PCIe Gen3 x2 link and from what its own scheduler spends on a swap.

    Attributes:
        groups: device groups in the machine.
        chips: chips of each group.
        depth: frames that a network's pipeline holds at once on the chips.
        latency_ms: from a frame's entry into the pipeline to its output, where the twin tells none.
        interval_ms: least time between two entries, where the twin tells none. None is latency / depth: a
            full pipeline then neither stalls nor starves.
        bandwidth_mbs: MB/s (10^6 bytes) at which weights go to the chips.
        swap_ms: fixed cost of bringing weights and model; `MODEL_SHARE` of it is the model's.
        profile: which libmemx: `strict` as documented, or `compat-2.11` as it was seen to behave.
        reconfigure: whether `memx_reconfigure` is exported, as up to libmemx 2.2; None is the profile's.
        zero_copy: whether the four calls for buffers of the library are exported, as from 2.10 on.
        poll_factor: how much longer than asked time-outs take, which the library counts in polls of 10 us
            that take as much longer; 1 is exact, with no polls, and None is the profile's.
        admin_ms: time of a command to the firmware: features, configuration.
        firmware: revision of the chips' firmware; libmemx opens no context on one below 6.
        lock_dir: folder of the lock files that several processes contend for; None keeps locks in memory.
        heat: temperature and power of the chips.
        answers: `twin` computes the ONNX graph in the file; `hash` gives bytes that depend on the network's
            name and the input alone (see `hash_answer`), for load tests.
    """

    groups: int = 1
    chips: int = 4
    depth: int = 4
    latency_ms: float = 1.0
    interval_ms: float | None = None
    bandwidth_mbs: float = 1500.0
    swap_ms: float = 15.0
    profile: ProfileName = "strict"
    reconfigure: bool | None = None
    zero_copy: bool = True
    poll_factor: float | None = None
    admin_ms: float = 0.0
    firmware: int = 6
    lock_dir: str | None = None
    heat: Heat = field(default_factory=Heat)
    answers: Literal["twin", "hash"] = "twin"

    def __post_init__(self) -> None:
        times = (self.latency_ms, self.interval_ms or 0.0, self.swap_ms, self.admin_ms)
        if self.groups < 0 or not 1 <= self.chips <= 16 or self.depth < 1:  # noqa: PLR2004  (16: the chain's limit)
            raise ConfigError("a simulated MX3 has groups >= 0, 1 to 16 chips, and depth >= 1")
        if min(times) < 0 or self.bandwidth_mbs <= 0 or self.answers not in {"twin", "hash"}:
            raise ConfigError("a simulated MX3 has times >= 0, bandwidth_mbs > 0, and answers twin or hash")
        if self.profile not in PROFILES or (self.poll_factor is not None and self.poll_factor < 1):
            raise ConfigError(f"a simulated MX3 has a profile of {list(PROFILES)}, and poll_factor >= 1")

    @property
    def traps(self) -> Trap:
        """What the simulated library does against its documents."""
        return PROFILES[self.profile].traps

    @property
    def patience(self) -> float:
        """How much longer than asked time-outs take."""
        return PROFILES[self.profile].poll_factor if self.poll_factor is None else self.poll_factor

    @property
    def hidden(self) -> frozenset[str]:
        """Optional functions that are not exported."""
        exported = PROFILES[self.profile].reconfigure if self.reconfigure is None else self.reconfigure
        names = () if exported else ("memx_reconfigure",)
        return frozenset(names if self.zero_copy else (*names, *_ZERO_COPY))

    def pace(self, latency: float | None, interval: float | None) -> tuple[float, float]:
        """Return a network's latency and interval in seconds; None is replaced by the default."""
        if latency is None:
            latency = self.latency_ms / 1e3
        if interval is None:
            interval = latency / self.depth if self.interval_ms is None else self.interval_ms / 1e3
        return latency, interval

    def download_seconds(self, weights: int, kind: DownloadType) -> float:
        """Return how long a download of that kind takes, for a file with `weights` bytes of weights."""
        fixed = self.swap_ms / 1e3
        seconds = 0.0
        if kind & DownloadType.WEIGHTS:
            seconds += fixed * (1 - MODEL_SHARE) + weights / (self.bandwidth_mbs * 1e6)
        if kind & DownloadType.MODEL:
            seconds += fixed * MODEL_SHARE
        return seconds
