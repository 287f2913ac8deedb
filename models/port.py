"""A port of a DFP file: one tensor of one network, as the device and as the caller see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from . import formats, layout
from .codec import FLOAT32
from .errors import ArtifactError, ContractError
from .formats import Bytes, Channels, PortFormat, Shape
from .hpoc import Hpoc
from .range_convert import RangeConvert
from .spec import Array, TensorSpec

__all__ = ["MAX_FRAME", "MAX_PORTS", "Hpoc", "Port", "RangeConvert"]

MAX_FRAME = 256 << 20
"""Bytes of one frame of one port; a file that claims more is refused."""
MAX_PORTS = 32
"""Flows of a device, in each direction."""


@final
@dataclass(frozen=True, slots=True)
class Port:
    """One input or output; a `Port` that exists is valid.

    Attributes:
        number: the device's flow, 0 to 31.
        active: an inactive port has a number and nothing else that counts.
        port_set: the configuration that it belongs to (see `Dfp`).
        model_index: the network that it belongs to, in `Dfp.models`.
        mpu_id: the chip that it is attached to.
        layer_name: the tensor's name.
        format: how its numbers lie on the wire.
        shape: (h, w, z, c) without the channels that `hpoc` drops.
        range_convert: of inputs, or None.
        hpoc: of outputs, or None.
        raw_shape: extents in the compiled graph, the frame's first, or None where the file does not tell.
        raw_dtype: element type in the compiled graph, or empty.
        layout: axis letters of the caller's tensor, a key of the file that only our own writer sets; or
            empty, and `axes` tells.

    Raises:
        ArtifactError: the values contradict each other or what a device can take.
    """

    number: int
    active: bool = True
    port_set: int = 0
    model_index: int = 0
    mpu_id: int = 0
    layer_name: str = ""
    format: PortFormat = PortFormat.FLOAT32
    shape: Shape = (1, 1, 1, 1)
    range_convert: RangeConvert | None = None
    hpoc: Hpoc | None = None
    raw_shape: tuple[int, ...] | None = None
    raw_dtype: str = ""
    layout: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.number < MAX_PORTS:
            raise ArtifactError(f"port {self.number}: numbers are 0 to {MAX_PORTS - 1}")
        for shape in (self.shape, self.wire_shape):
            self._check_extents(shape)
        self._check_hpoc()
        self._check_layout()

    @property
    def wire_shape(self) -> Shape:
        """(h, w, z, c) of the frames that the device takes or gives."""
        return self.shape if self.hpoc is None else self.hpoc.shape

    @property
    def nbytes(self) -> int:
        """Bytes of one frame on the wire."""
        return formats.frame_bytes(self.wire_shape, self.format)

    @property
    def axes(self) -> str:
        """Axis letters of the caller's tensor.

        Without the key `layout` they are found from `raw_shape`. Where that tells nothing, the caller sees
        what the device has: `NHWC`, or `NHWZC` if z is not 1.
        """
        found = self.layout or layout.find(self.raw_shape or (), self.shape)
        return found or ("NHWC" if self.shape[2] == 1 else "NHWZC")

    @property
    def spec(self) -> TensorSpec:
        """The port as the caller sees it, the frame's extent of 1 first.

        A caller's numbers are float32; at an RGB888 port without `range_convert` uint8, which pass untouched.

        Raises:
            ArtifactError: no array stands for this format.
        """
        return TensorSpec(self.layer_name, self._extents, self._dtype, self.axes)

    def encode(self, array: Array, out: Bytes) -> None:
        """Write a tensor as a frame; what `decode` reads back, up to the format's rounding.

        The host encodes inputs and decodes outputs, simulated chips do the reverse: at an output they put
        `hpoc.DUMMY` into the channels that `hpoc` drops.

        Args:
            array: a tensor of `spec`, in any memory order; it is only read.
            out: `nbytes` of memory, whoever owns it.

        Raises:
            ContractError: an array or a buffer came that the port does not have.
        """
        if array.shape != self._extents or array.dtype != self._dtype:
            raise ContractError(f"{array.dtype}{list(array.shape)} came to the port of {self.spec}")
        wire = self.to_wire(array)
        if self.range_convert is not None:
            wire = self.range_convert.apply(wire, formats.native_dtype(self.format))
        if self.hpoc is not None:
            wire = self.hpoc.widen(wire)
        formats.encode(wire, self.format, out)

    def decode(self, buffer: Bytes) -> Array:
        """Read a frame as a new tensor of `spec`, contiguous, that shares no memory with `buffer`.

        Raises:
            ContractError: the buffer has not exactly `nbytes`.
        """
        array = self.empty()
        formats.decode(buffer, self.wire_shape, self.format, self.to_wire(array), self._channels)
        return array if self.range_convert is None else self.range_convert.undo(array)

    def empty(self) -> Array:
        """Return a new tensor of the port's extents and its format's dtype, with nothing in it yet."""
        return np.empty(self._extents, formats.native_dtype(self.format))

    def verbatim(self, array: Array) -> Array | None:
        """View a tensor's own memory as its frame, where the two are the same bytes; else None."""
        if self.range_convert is not None or self.hpoc is not None or not formats.verbatim(self.format):
            return None
        wire = self.to_wire(array)
        same = wire.dtype == self._dtype and wire.nbytes == self.nbytes and wire.flags.c_contiguous
        return wire if same else None

    def to_wire(self, array: Array) -> Array:
        """View a tensor of `spec` as (h, w, z, c)."""
        return layout.to_wire(array, self.axes, self.shape)

    @property
    def _extents(self) -> tuple[int, ...]:
        return layout.extents(self.axes, self.shape)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return formats.native_dtype(self.format) if self.range_convert is None else FLOAT32

    @property
    def _channels(self) -> Channels:
        return slice(0, self.shape[3]) if self.hpoc is None else self.hpoc.kept

    def _check_extents(self, shape: Shape) -> None:
        if min(shape) < 1:
            raise self._error(f"shape {shape} has an extent below 1")
        if formats.frame_bytes(shape, self.format) > MAX_FRAME:
            raise self._error(f"a frame of {shape} {self.format.name} exceeds {MAX_FRAME} bytes")

    def _check_hpoc(self) -> None:
        if self.hpoc is None:
            return
        *pixels, channels = self.hpoc.shape
        dropped = self.hpoc.channels
        if len(set(dropped)) < len(dropped) or not all(0 <= channel < channels for channel in dropped):
            raise self._error("hpoc drops a channel that is not there, or one twice")
        if (*pixels, channels - len(dropped)) != self.shape:
            raise self._error(f"hpoc {self.hpoc.shape} without {len(dropped)} channels is not {self.shape}")

    def _check_layout(self) -> None:
        if not self.layout:
            return
        if not layout.valid(self.layout, len(self.layout)):
            raise self._error(f"{self.layout!r} is no layout")
        tensor = self.raw_shape or layout.extents(self.layout, self.shape)
        if not layout.fits(self.layout, tensor, self.shape):
            raise self._error(f"{self.layout} does not take {tensor} to {self.shape}")

    def _error(self, what: str) -> ArtifactError:
        return ArtifactError(f"port {self.number} {self.layer_name!r}: {what}")
