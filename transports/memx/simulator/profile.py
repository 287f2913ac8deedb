"""Which libmemx is simulated: as its vendor documents it, or as version 2.11.2 was seen to be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, final

from repertory.transports.memx.features import GetFeature, SetFeature

__all__ = ["PROFILES", "Profile", "ProfileName", "Trap"]

ProfileName: TypeAlias = Literal["strict", "compat-2.11"]


class Trap(Flag):
    """What libmemx 2.11.2 does and no document says. Without the trap comes what its note ends with."""

    LEAKED_MUTEX = auto()
    """A trylock or lock that fails keeps the in-process mutex until an unlock; else it gives it back."""
    LAST_DOWNLOAD = auto()
    """A download to the id that was downloaded to last is OK and does nothing; else it is done."""
    UNREPORTED_WEIGHTS = auto()
    """A weight load that fails is OK, and answers are wrong; else it is DOWNLOAD_FAILED."""
    ENABLE_WAIT = auto()
    """`memx_set_stream_enable` with wait 1 never returns; else it does once frames may move."""
    CLOSE_OF_CLOSED = auto()
    """A close of a context that is not open is CONTEXT_NOT_OPEN; else OK."""
    FORGOTTEN_CALLER = auto()
    """A close leaves who waits in a stream call waiting; else that call ends with CONTEXT_NOT_OPEN."""
    HALVES = auto()
    """A file for a whole group, loaded again after the group was halved, crashes; else DOWNLOAD_FAILED."""


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """One libmemx.

    Attributes:
        traps: what it does against its documents.
        poll_factor: how much longer than asked its time-outs take; 1 is exact.
        reconfigure: whether it exports `memx_reconfigure`.
        readable: how many opcodes of `GetFeature` it knows, from the first.
        writable: how many opcodes of `SetFeature`, likewise.
    """

    traps: Trap
    poll_factor: float
    reconfigure: bool
    readable: int
    writable: int


PROFILES: Final = MappingProxyType[ProfileName, Profile](
    {
        "strict": Profile(
            Trap(0), poll_factor=1.0, reconfigure=True, readable=len(GetFeature), writable=len(SetFeature)
        ),
        "compat-2.11": Profile(
            ~Trap(0),
            poll_factor=8.5,
            reconfigure=False,
            readable=GetFeature.FREQUENCY_EFFECTIVE,  # which 2.12 brought
            writable=SetFeature.DEVICE_DMA_TRIGGER_TYPE,
        ),
    }
)
