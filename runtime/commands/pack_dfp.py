"""What `repertory pack --family memx` does."""

from __future__ import annotations

import argparse

from repertory.models.errors import ConfigError
from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx

from .pack_options import pairs, read, refuse_foreign, seconds, shapes

__all__ = ["FORMATS", "pack_dfp"]

FORMATS = {
    "fp32": PortFormat.FLOAT32,
    "bf16": PortFormat.BF16,
    "gbf80": PortFormat.GBF80,
    "gbf80-row": PortFormat.GBF80_ROW,
    "rgb888": PortFormat.RGB888,
}
"""Names of port formats."""

_CHIPS = 4


def pack_dfp(options: argparse.Namespace) -> bytes:
    """Make a DFP of all models."""
    refuse_foreign(options, "memx")
    named, for_all = _port_formats(options.format)
    return pack_memx(
        [(path.stem, read(path)) for path in options.model],
        shapes=shapes(options.shape),
        layouts=dict(pairs(options.layout)),
        chips=_CHIPS if options.chips is None else options.chips,
        co_map=options.co_map,
        formats=named,
        port_format=for_all,
        latency=seconds("--latency-ms", options.latency_ms),
        interval=seconds("--interval-ms", options.interval_ms),
    )


def _port_formats(texts: list[str]) -> tuple[dict[str, PortFormat], PortFormat]:
    """Return the formats by tensor, and that of all others; the last word counts."""
    named: dict[str, PortFormat] = {}
    for_all = PortFormat.FLOAT32
    for text in texts:
        name, separator, value = text.rpartition("=")
        if value not in FORMATS:
            raise ConfigError(f"--format {text}: {value!r} is none of {', '.join(FORMATS)}")
        if separator:
            named[name] = FORMATS[value]
        else:
            for_all = FORMATS[value]
    return named, for_all
