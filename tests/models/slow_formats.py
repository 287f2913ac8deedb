"""BF16 and GBF80 once more, one number at a time on Python's integers, from the words of the rules.

Numbers are float32 bits. Nothing here is shared with the codecs under test, nor made like them.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bf16", "gbf80_frame", "gbf80_word", "read_gbf80_word"]


def bf16(bits: int) -> int:
    return ((bits + 0x8000) % 2**32) >> 16


def gbf80_word(numbers: Sequence[int]) -> bytes:
    """Write up to eight channels."""
    rounded = [bf16(bits) for bits in numbers]
    exponents = [half // 128 % 256 for half in rounded]
    largest = max(exponents)
    text = ["0"] * 80
    for channel, (half, exponent) in enumerate(zip(rounded, exponents, strict=True)):
        mantissa = 128 + half % 128
        first_out = 0
        for _ in range(largest - exponent):
            first_out, mantissa = mantissa % 2, mantissa // 2
        if largest - exponent >= 32:
            first_out = mantissa = 0
        mantissa += first_out
        sign = half // 32768 if mantissa else 0
        for place in range(8):
            text[9 * channel + place] = str(mantissa >> place & 1)
        text[9 * channel + 8] = str(sign)
    for place in range(8):
        text[72 + place] = str(largest >> place & 1)
    return int("".join(reversed(text)), 2).to_bytes(10, "little")


def read_gbf80_word(word: bytes) -> list[int]:
    """Read all eight channels."""
    bits = int.from_bytes(word, "little")
    return [
        _normalised(bits >> 9 * channel & 255, bits >> 72, bits >> 9 * channel + 8 & 1)
        for channel in range(8)
    ]


def _normalised(mantissa: int, exponent: int, sign: int) -> int:
    if mantissa == 0:
        return sign * 2**31
    while mantissa < 128:
        mantissa, exponent = 2 * mantissa, max(0, exponent - 1)
    return sign * 2**31 + exponent * 2**23 + (mantissa - 128) * 2**16


def gbf80_frame(rows: Sequence[Sequence[Sequence[int]]], *, pad_rows: bool) -> bytes:
    """Write rows of pixels of channels; z counts as more pixels of a row."""
    frame = b""
    for row in rows:
        for pixel in row:
            for first in range(0, len(pixel), 8):
                frame += gbf80_word(pixel[first : first + 8])
        if pad_rows:
            frame += bytes(-len(frame) % 4)
    return frame + bytes(-len(frame) % 4)
