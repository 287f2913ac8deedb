"""What a device group can be told, besides being given frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

from repertory.models.program import Program

from .policy import Entry

__all__ = ["Evict", "GroupOrder", "MakeResident", "Probe"]


@final
@dataclass(frozen=True, slots=True)
class MakeResident:
    """Order: bind this context's program now, as if a frame waited."""

    entry: Entry


@final
@dataclass(frozen=True, slots=True)
class Evict:
    """Order: free what this program holds on the device, if it is resident."""

    program: Program


@final
@dataclass(frozen=True, slots=True)
class Probe:
    """Order: read the device's health; answered with a Health."""


GroupOrder: TypeAlias = MakeResident | Evict | Probe
