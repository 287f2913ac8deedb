from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["mutations"]


def mutations(data: bytes, count: int, *, seed: int = 0) -> Iterator[bytes]:
    """Spoil a file in `count` ways, always the same: bytes changed, swapped, cut out, doubled, cut off."""
    chance = random.Random(seed)
    for _ in range(count):
        spoiled = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            match chance.randrange(6):
                case 0:
                    spoiled[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    spoiled[at : at + 4] = chance.randbytes(4)
                case 2:
                    del spoiled[at : at + chance.randint(1, 70)]
                case 3:
                    spoiled[at:at] = spoiled[at : at + chance.randint(1, 70)]
                case 4:
                    spoiled[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF))])
                case _:
                    del spoiled[at:]
        yield bytes(spoiled)
