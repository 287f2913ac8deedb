"""What `repertory pack --family c7x` does."""

from __future__ import annotations

import argparse

from repertory.models.errors import ConfigError
from repertory.models.pack_c7x import pack_c7x

from .pack_options import read, refuse_foreign, seconds, shapes

__all__ = ["pack_dynmod"]


def pack_dynmod(options: argparse.Namespace) -> bytes:
    """Make a module of the one model."""
    refuse_foreign(options, "c7x")
    if len(options.model) > 1:
        raise ConfigError(f"{len(options.model)} models came; a module for a DSP holds one")
    (path,) = options.model
    latency = seconds("--latency-ms", options.latency_ms)
    return pack_c7x(path.stem, read(path), shapes=shapes(options.shape), latency=latency)
