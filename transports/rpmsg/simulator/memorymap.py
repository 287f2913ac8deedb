"""Where the firmware expects things, by the DSP's addresses."""

from __future__ import annotations

from typing import Final, Literal, final

__all__ = ["BASE", "KV", "PRINTF", "RESULT", "STAGING", "Region", "staging"]


@final
class Region:
    """A stretch of addresses.

    Args:
        start: first address.
        size: bytes.
    """

    __slots__ = ("end", "size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start = start
        self.size = size
        self.end = start + size

    def holds(self, address: int, size: int) -> bool:
        """Whether that many bytes from `address` on lie in it."""
        return self.start <= address and address + size <= self.end


BASE: Final = 0xC0000000
"""The carveout's first byte."""

STAGING: Final = Region(BASE, 0x1D400000)
KV: Final = Region(0xDD400000, 0x00C00000)
RESULT: Final = Region(0xDE000000, 0x02000000)
PRINTF: Final = Region(0xDFFF0000, 0x10000)
"""The end of `RESULT`, in version 2; later versions are told."""

_STAGING_3: Final = Region(BASE, 480 << 20)


def staging(wire: Literal[2, 3]) -> Region:
    """Return where modules and weights are read from."""
    return STAGING if wire == 2 else _STAGING_3  # noqa: PLR2004
