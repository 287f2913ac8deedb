"""Tensors in the memory that host and DSP share: how inputs are laid there, and results read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from repertory.models.errors import DeviceError
from repertory.models.spec import Array

from .memory import Window, aligned
from .wire.messages import DTYPE_CODES, INLINE_INPUTS, MAX_OUTPUTS, Descriptor, Inferred, Malformed, Span
from .wire.requests import DESCRIPTOR_SIZE, pack_descriptors, unpack_descriptors

__all__ = [
    "INLINE_OUTPUTS",
    "Staged",
    "describe",
    "place_table",
    "read_outputs",
    "room_for",
    "stage",
    "table_size",
]

INLINE_OUTPUTS: Final = 5
"""Outputs that fit into a reply; the descriptions of more lie behind them in memory."""


@final
@dataclass(frozen=True, slots=True)
class Staged:
    """Inputs that lie in a window.

    Attributes:
        descriptors: one for each, in order.
        table: where the descriptors lie, if they are too many for a message.
    """

    descriptors: tuple[Descriptor, ...]
    table: Span | None


def room_for(sizes: Iterable[int]) -> int:
    """Bytes of tensors of these sizes, each aligned."""
    return sum(map(aligned, sizes))


def table_size(count: int, inline: int) -> int:
    """Bytes of the table of descriptors, which exists where there are more than go into a message."""
    return aligned(count * DESCRIPTOR_SIZE) if count > inline else 0


def describe(array: Array, address: int) -> Descriptor:
    """Describe an array that lies at an address.

    Raises:
        KeyError: its dtype has no code.
    """
    dtype = array.dtype
    return Descriptor(address, array.nbytes, DTYPE_CODES[dtype.kind], 8 * dtype.itemsize, array.shape)


def stage(arrays: Sequence[Array], window: Window) -> Staged:
    """Copy arrays into a window, one behind the other, and let the DSP see them; whatever their byte order.

    Raises:
        ValueError: they do not fit.
    """
    view, at = window.view, 0
    descriptors: list[Descriptor] = []
    for array in arrays:
        dtype = array.dtype.newbyteorder("<")
        target: Array = np.ndarray(array.shape, dtype, _within(view, at, array.nbytes), at)
        np.copyto(target, array)
        descriptors.append(describe(array, window.address + at))
        at = aligned(at + array.nbytes)
    table = place_table(descriptors, window, at)
    window.buffer.flush()
    return Staged(tuple(descriptors), table)


def place_table(descriptors: Sequence[Descriptor], window: Window, at: int) -> Span | None:
    """Write the table of many descriptors into a window at an offset; None where they go into a message.

    Raises:
        ValueError: it does not fit.
    """
    if len(descriptors) <= INLINE_INPUTS:
        return None
    table = pack_descriptors(tuple(descriptors))
    _within(window.view, at, len(table))[at : at + len(table)] = table
    return Span(window.address + at, len(table))


def read_outputs(reply: Inferred, area: Window) -> list[Array]:
    """Return the outputs of a job that succeeded, as arrays over the result's own memory.

    In the order in which the module has them, which the firmware may have changed.

    Raises:
        DeviceError: the reply claims what cannot be; says what.
    """
    if reply.count > MAX_OUTPUTS:
        raise _absurd(f"{reply.count} outputs, and {MAX_OUTPUTS} are possible")
    area.buffer.invalidate()
    found = reply.outputs if reply.table is None else _from_table(reply.table, reply.count, area)
    if len(found) != reply.count:
        raise _absurd(f"{reply.count} outputs, and describes {len(found)}")
    views = [_view(output, area) for output in sorted(found, key=lambda output: output.position)]
    _check_apart(found)
    return views


def _from_table(table: Span, count: int, area: Window) -> tuple[Descriptor, ...]:
    start = table.address - area.address
    size = count * DESCRIPTOR_SIZE
    if start < 0 or start + size > area.size or table.size < size:
        raise _absurd(f"a table of {table.size} bytes at {table.address:#x} for {count} outputs")
    try:
        return unpack_descriptors(bytes(area.view[start : start + size]), count)
    except Malformed as error:
        raise _absurd(f"a table that cannot be read: {error}") from error


def _view(output: Descriptor, area: Window) -> Array:
    dtype = output.dtype
    if dtype is None:
        raise _absurd(f"an output of type code {output.code} with {output.bits} bits")
    start = output.address - area.address
    wanted = math.prod(output.shape) * dtype.itemsize
    if output.size != wanted:
        raise _absurd(f"{output.size} bytes for {dtype}{list(output.shape)}")
    if start < 0 or start + wanted > area.size:
        raise _absurd(
            f"an output of {wanted} bytes at {output.address:#x}, outside the result's"
            f" {area.size} at {area.address:#x}"
        )
    try:
        return np.ndarray(output.shape, dtype, area.view, start)
    except ValueError as error:  # no element, and extents that no array has
        raise _absurd(f"an output of shape {list(output.shape)}") from error


def _check_apart(outputs: Iterable[Descriptor]) -> None:
    end = 0
    for output in sorted(outputs, key=lambda output: (output.address, output.size)):
        if output.size and output.address < end:
            raise _absurd(f"outputs that overlap at {output.address:#x}")
        end = max(end, output.address + output.size)


def _within(view: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(view):
        raise ValueError(f"{size} bytes at {at} do not fit into {len(view)}")
    return view


def _absurd(claim: str) -> DeviceError:
    return DeviceError(f"the DSP's answer claims {claim}", family="c7x", call="INFER")
