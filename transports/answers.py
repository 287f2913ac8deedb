"""Answers that are hashes: what a simulated device says where no twin computes.

They depend on the network's name and on every input byte, so a mix-up of frames or models shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

from repertory.models.program import Network
from repertory.models.spec import Array, TensorSpec

__all__ = ["hash_answer", "hash_pattern"]


def hash_pattern(name: str, inputs: Iterable[Array], size: int) -> Array:
    """Return `size` bytes (uint8[size]): the digest of name and inputs, repeated."""
    digest = blake2b(name.encode(), digest_size=16)
    for array in inputs:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return np.frombuffer(bytearray(digest.digest() * -(-size // 16)), np.uint8)[:size]


def hash_answer(network: Network, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Return one array for each output of the network; whole numbers from 0 to 255 of its dtype."""
    return tuple(_fill(network.name, inputs, spec) for spec in network.outputs)


def _fill(name: str, inputs: Sequence[Array], spec: TensorSpec) -> Array:
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
    pattern = hash_pattern(f"{name}/{spec.name}", inputs, math.prod(shape))
    return pattern.astype(spec.dtype).reshape(shape)
