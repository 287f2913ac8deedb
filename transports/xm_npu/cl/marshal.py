"""Between the tensors of a call as Python has them and as C has them."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Array, Structure, addressof, c_uint32, create_string_buffer, string_at
from typing import Any, Final, final

from .library import InOut, Tensor, TensorBatch
from .structs import NATIVE

__all__ = ["CInOut"]

_PRESENT: Final = ("tensor", "tensor_batch", "current_batch")


@final
class CInOut:
    """An `InOut` in C; must outlive the calls that may look at it.

    Args:
        io: what it is made from.
        room: tensors for which there is room at least, in those arrays that are not NULL.

    Attributes:
        struct: to be passed by pointer.
    """

    def __init__(self, io: InOut, room: int = 0) -> None:
        lengths = [room, *(len(each) for each in (io.tensor, io.tensor_batch, io.current_batch) if each)]
        size = max(1, *lengths)
        self._names: list[Array[Any]] = []
        self._tensors: Any = (NATIVE.tensor * size)()
        self._batches: Any = (NATIVE.batch * size)()
        self._current: Any = (c_uint32 * size)()
        self.struct: Any = NATIVE.inout(io.num)
        self._fill(io)
        arrays: tuple[Any, ...] = (self._tensors, self._batches, self._current)
        for name, array in zip(_PRESENT, arrays, strict=True):
            if getattr(io, name) is not None:
                setattr(self.struct, name, addressof(array))

    def _fill(self, io: InOut) -> None:
        for place, tensor in enumerate(io.tensor or ()):
            self._put(self._tensors[place], tensor)
        for place, batch in enumerate(io.tensor_batch or ()):
            self._batches[place].batch_count = batch.batch_count
            self._batches[place].batch[:] = batch.batch
        for place, current in enumerate(io.current_batch or ()):
            self._current[place] = current

    def _put(self, struct: Any, tensor: Tensor) -> None:
        struct.tensor_id, struct.addr = tensor.tensor_id, tensor.addr or None
        struct.shape.ndims, struct.shape.type = tensor.ndims, tensor.type
        struct.shape.dims[:], struct.shape.pch[:] = tensor.dims, tensor.pch
        struct.quant.scale, struct.quant.zp = tensor.scale, tensor.zp
        struct.size = tensor.size
        if tensor.name is not None:
            self._names.append(name := create_string_buffer(tensor.name))
            struct.name = addressof(name)

    def read_into(self, io: InOut) -> None:
        """Take over what the library wrote; arrays that are too short grow to the number of tensors."""
        io.num = self.struct.num
        if io.tensor is not None:
            io.tensor[:] = [_tensor(each) for each in self._some(self._tensors, io.num)]
        if io.tensor_batch is not None:
            batches = self._some(self._batches, io.num)
            io.tensor_batch[:] = [TensorBatch(each.batch_count, tuple(each.batch)) for each in batches]
        if io.current_batch is not None:
            io.current_batch[:] = list(self._some(self._current, io.num))

    @staticmethod
    def _some(array: Any, count: int) -> Sequence[Any]:
        return list(array[:count])


def _tensor(struct: Structure) -> Tensor:
    shape, quant = struct.shape, struct.quant
    return Tensor(
        tensor_id=struct.tensor_id,
        addr=struct.addr or 0,
        ndims=shape.ndims,
        dims=tuple(shape.dims),
        pch=tuple(shape.pch),
        type=shape.type,
        scale=quant.scale,
        zp=quant.zp,
        size=struct.size,
        name=string_at(struct.name) if struct.name else None,
    )
