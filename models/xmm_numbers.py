"""Numbers of an NPU's tensors: the way between arrays and bytes, with padded rows and quantisation.

Elements of several bytes are little-endian on any host. Reals become integers by
clamp(round(real / scale) + zero point), half to even; FP16 and FP32 are never quantised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .errors import ContractError, InvalidInput
from .spec import Array, Dim, Quantisation, TensorSpec
from .xmm_layout import BITS, Layout, axes, layout
from .xmm_tensor import NpuType, XmmTensor

__all__ = ["fitted", "native_dtype", "quantisation", "read", "read_as", "tensor_spec", "write"]

_NATIVE: Final[dict[NpuType, np.dtype[Any]]] = {
    NpuType.INT8: np.dtype(np.int8),
    NpuType.UINT8: np.dtype(np.uint8),
    NpuType.INT16: np.dtype(np.int16),
    NpuType.UINT16: np.dtype(np.uint16),
    NpuType.FP16: np.dtype(np.float16),
    NpuType.INT32: np.dtype(np.int32),
    NpuType.FP32: np.dtype(np.float32),
    NpuType.INT4: np.dtype(np.int8),
    NpuType.UINT12: np.dtype(np.uint16),
    NpuType.UINT10: np.dtype(np.uint16),
}
_LIMITS: Final = {NpuType.INT4: (-8, 7), NpuType.UINT12: (0, 4095), NpuType.UINT10: (0, 1023)}
_WORD = 16  # bits of an element while its bits are picked


def native_dtype(type: NpuType) -> np.dtype[Any]:  # noqa: A002
    """Return what arrays of a type hold, in the host's byte order."""
    return _NATIVE[type]


def quantisation(tensor: XmmTensor) -> Quantisation | None:
    """Return how a tensor's integers stand for reals; None where they are plain numbers, or are floats."""
    if native_dtype(tensor.type).kind == "f" or (tensor.scale == 1 and tensor.zero_point == 0):
        return None
    return _affine(tensor)


def tensor_spec(tensor: XmmTensor, *, output: bool, native: bool = False) -> TensorSpec:
    """Return a tensor as callers see it.

    Args:
        tensor: what lies in memory.
        output: an output is float32 unless `native`; an input is what lies there, and where its integers are
            quantised callers may give float32.
        native: let outputs be what lies there too.
    """
    letters = axes(tensor.dims)
    if output and not native:
        return TensorSpec(tensor.name, tensor.dims, np.dtype(np.float32), letters)
    native_type, limits = native_dtype(tensor.type), _LIMITS.get(tensor.type)
    return TensorSpec(tensor.name, tensor.dims, native_type, letters, quantisation(tensor), limits)


def write(array: Array, tensor: XmmTensor, out: memoryview) -> None:
    """Write a tensor's elements; what pads its rows stays as it is.

    Args:
        array: of the tensor's extents. Of its native dtype it is written as it is; other numbers are reals
            and become quantised: infinities saturate, and NaN counts as 0. FP16 overflows to infinities.
        tensor: where they lie; its offset does not count.
        out: writable, as long as the tensor's size or longer.

    Raises:
        InvalidInput: a native integer is beyond INT4, UINT10 or UINT12; names the tensor.
        ContractError: the array or the bytes are not as told.
        ArtifactError: the tensor's pitches contradict themselves.
    """
    if array.shape != tensor.dims:
        raise ContractError(f"{tensor.name}: an array of {array.shape} came, {tensor.dims} is wanted")
    found, stored = _checked(tensor, len(out)), _stored(array, tensor)
    if BITS[tensor.type] % 8:
        packed = _pack(stored.reshape(*found.outer, found.run), BITS[tensor.type])
        np.copyto(_runs(out, found), packed)
    else:
        np.copyto(_elements(out, found, tensor.type), stored)


def read(data: memoryview, tensor: XmmTensor, *, native: bool) -> Array:
    """Read a tensor's elements.

    Args:
        data: as long as the tensor's size or longer; only read.
        tensor: where they lie; its offset does not count.
        native: whether they are wanted as they are stored; else as reals, in float32.

    Returns:
        A new array of the tensor's extents, in C order.

    Raises:
        ContractError: the bytes are too few.
        ArtifactError: the tensor's pitches contradict themselves.
    """
    stored = _read_stored(data, tensor)
    if native:
        return stored
    affine = quantisation(tensor)
    return stored.astype(np.float32, copy=False) if affine is None else affine.dequantise(stored)


def read_as(data: memoryview, tensor: XmmTensor, dtype: np.dtype[Any]) -> Array:
    """Read a tensor's elements as numbers of another dtype: what a graph gets that stands for the NPU's.

    Plain integers stay exact; reals are rounded where `dtype` holds integers. What does not fit saturates.

    Raises:
        ContractError: as `read`.
        ArtifactError: likewise.
    """
    array = read(data, tensor, native=quantisation(tensor) is None)
    if array.dtype == dtype or dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return array.astype(dtype, copy=False)
    if array.dtype.kind == "f":
        return Quantisation(1.0).quantise(np.nan_to_num(array, posinf=np.inf, neginf=-np.inf), dtype)
    info = np.iinfo(dtype)
    return np.clip(array.astype(np.int64), info.min, info.max).astype(dtype)


def fitted(array: Array, shape: Sequence[Dim]) -> Array:
    """Return an array with a graph's extents, where they differ from the NPU's by extents of 1 alone."""
    if len(array.shape) == len(shape):
        return array
    return array.reshape(tuple(dim if isinstance(dim, int) else -1 for dim in shape))


def _affine(tensor: XmmTensor) -> Quantisation:
    return Quantisation(tensor.scale, tensor.zero_point, _LIMITS.get(tensor.type))


def _stored(array: Array, tensor: XmmTensor) -> Array:
    native = native_dtype(tensor.type)
    if array.dtype == native:
        _check_range(array, tensor)
        return array
    if native.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(native)
    if array.dtype.kind == "f" and np.isnan(array).any():
        array = np.where(np.isnan(array), array.dtype.type(0), array)
    return _affine(tensor).quantise(array, native)


def _check_range(array: Array, tensor: XmmTensor) -> None:
    low, high = _LIMITS.get(tensor.type, (0, 0))
    if low != high and array.size and (array.min() < low or array.max() > high):
        raise InvalidInput(f"{tensor.name}: {tensor.type.name} holds {low} to {high}, others came")


def _checked(tensor: XmmTensor, size: int) -> Layout:
    if size < tensor.size:
        raise ContractError(f"{tensor.name}: {size} bytes came, {tensor.size} are wanted")
    return layout(tensor)


def _read_stored(data: memoryview, tensor: XmmTensor) -> Array:
    found, native = _checked(tensor, len(data)), native_dtype(tensor.type)
    if BITS[tensor.type] % 8 == 0:
        return _elements(data, found, tensor.type).astype(native, order="C")
    unpacked = _unpack(_runs(data, found), found.run, BITS[tensor.type], signed=native.kind == "i")
    return unpacked.reshape(tensor.dims).astype(native)


def _elements(data: memoryview, found: Layout, kind: NpuType) -> Array:
    return np.ndarray(found.outer, native_dtype(kind).newbyteorder("<"), data, 0, found.strides)


def _runs(data: memoryview, found: Layout) -> Array:
    return np.ndarray((*found.outer, found.run_bytes), np.uint8, data, 0, (*found.strides, 1))


def _pack(stored: Array, bits: int) -> Array:
    """Make bytes of the last axis, a stream of bits, the lowest of the first element first."""
    words = stored.astype("<u2" if stored.dtype.kind == "u" else "<i2")[..., np.newaxis].view(np.uint8)
    picked = np.unpackbits(words, axis=-1, bitorder="little")[..., :bits]
    return np.packbits(picked.reshape(*stored.shape[:-1], -1), axis=-1, bitorder="little")


def _unpack(runs: Array, count: int, bits: int, *, signed: bool) -> Array:
    """Undo `_pack`: int16 or uint16."""
    flat = np.unpackbits(np.ascontiguousarray(runs), axis=-1, count=count * bits, bitorder="little")
    words = np.zeros((*runs.shape[:-1], count, _WORD), np.uint8)
    words[..., :bits] = flat.reshape(*runs.shape[:-1], count, bits)
    if signed:
        words[..., bits:] = words[..., bits - 1 : bits]
    made = np.packbits(words, axis=-1, bitorder="little").view("<i2" if signed else "<u2")
    return made[..., 0]
