"""Memory for inputs that host and DSP share: tensors that stay there, and behind them those of one run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, TypeAlias, final

import numpy as np

from repertory.models.spec import Array
from repertory.transports.rpmsg.memory import Window, aligned
from repertory.transports.rpmsg.tensors import Staged, describe, place_table, table_size
from repertory.transports.rpmsg.wire.messages import INLINE_INPUTS, MAX_INPUTS, Descriptor

from .errors import InputBusy, StagingFull, StaleInput, VmClosed
from .inputs import as_content
from .nd import NDArray, write

__all__ = ["TABLE", "Input", "StagedInput", "Staging"]

TABLE: Final = table_size(MAX_INPUTS, INLINE_INPUTS)
"""Bytes behind the inputs for the descriptors of a run that has many."""


@final
class Staging:
    """A bump allocator over a window, and what the DSP is reading of it.

    Args:
        window: at least `capacity` and `TABLE` bytes.
        capacity: bytes for inputs.
        on_busy: called before a write is refused; may find that the DSP reads no more, and `release`.
    """

    def __init__(self, window: Window, capacity: int, *, on_busy: Callable[[], None]) -> None:
        self._process = os.getpid()
        self._window: Window | None = window
        self._capacity = capacity
        self._on_busy = on_busy
        self._cursor = 0
        self._count = 0
        self._why = ""
        self._guard = threading.RLock()
        self._everything = False
        self._read: frozenset[int] = frozenset()

    def create(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> StagedInput:
        """Take memory for a tensor of zeros, which stays.

        Raises:
            StagingFull: there are 128 already, or not enough bytes.
        """
        if self._count == MAX_INPUTS:
            raise StagingFull(f"{MAX_INPUTS} staged inputs are all there are; only close() gives them back")
        tensor = StagedInput(self, self._cursor, shape, dtype)
        end = self._cursor + tensor.nbytes
        if end > self._capacity:
            raise self._full(tensor.nbytes)
        self.content(tensor)[...] = 0
        self._cursor = aligned(end)
        self._count += 1
        return tensor

    def content(self, tensor: StagedInput) -> Array:
        """Return the memory of a tensor.

        Raises:
            StaleInput: it is gone.
            VmClosed: this is a forked process.
        """
        self._check_process()
        if self._window is None:
            raise StaleInput(f"this staged input is gone: {self._why}; make another with create_input()")
        return _array(self._window, tensor.offset, tensor.shape, np.dtype(tensor.dtype))

    def write(self, tensor: StagedInput, source: object) -> None:
        """Copy into a tensor.

        Raises:
            InputBusy: the DSP is reading it.
            StaleInput: it is gone.
            VmClosed: this is a forked process.
        """
        self._check_process()
        content = as_content(source)
        if self._is_read(tensor):
            self._on_busy()
        with self._guard:  # so that no run begins meanwhile
            if self._is_read(tensor):
                raise InputBusy("the DSP is reading this staged input; write to it after the run")
            write(self.content(tensor), content)

    def hold(self, inputs: Iterable[Input], *, everything: bool) -> None:
        """Refuse writes to the tensors that a run reads, or to all.

        All is right where inputs and results share a buffer: the sync after the run would drop what was
        written since the one before it.
        """
        with self._guard:
            self._everything = everything
            self._read = frozenset(id(tensor) for tensor in inputs if isinstance(tensor, StagedInput))

    def release(self) -> None:
        """Let everything be written to: the run is over."""
        with self._guard:
            self._everything, self._read = False, frozenset()

    def check(self, inputs: Sequence[Input]) -> None:
        """Look whether the inputs of a run fit.

        Raises:
            StagingFull: they do not.
            StaleInput: one is gone.
        """
        copied = [self.copied(tensor) for tensor in inputs]
        wanted = sum(aligned(array.nbytes) for array in copied if array is not None)
        if self._cursor + wanted > aligned(self._capacity):
            raise self._full(wanted)

    def copied(self, tensor: Input) -> Array | None:
        """Return what is copied for a run; None for a tensor that lies here.

        Raises:
            StaleInput: it is gone.
        """
        if not isinstance(tensor, StagedInput):
            return tensor
        own = tensor.staging is self
        content = tensor.staging.content(tensor)
        return None if own else content

    def lay(self, inputs: Sequence[Input]) -> Staged:
        """Copy what does not lie here behind the tensors that stay, and let the DSP see everything."""
        window = self._live()
        at = self._cursor
        descriptors: list[Descriptor] = []
        for tensor in inputs:
            array = self.copied(tensor)
            if array is None:
                assert isinstance(tensor, StagedInput), "nothing else lies here"
                descriptors.append(describe(self.content(tensor), window.address + tensor.offset))
            else:
                _array(window, at, array.shape, array.dtype)[...] = array
                descriptors.append(describe(array, window.address + at))
                at = aligned(at + array.nbytes)
        table = place_table(descriptors, window, aligned(self._capacity))
        window.buffer.flush()
        return Staged(tuple(descriptors), table)

    def end(self, why: str) -> None:
        """Let every use raise from now on, and let go of the memory. Any number of times."""
        with self._guard:
            self._why = self._why or why
            self._window = None

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise VmClosed("this staged input is another process's: a fork cannot use its memory")

    def _live(self) -> Window:
        if self._window is None:
            raise StaleInput(f"the memory for inputs is gone: {self._why}")
        return self._window

    def _is_read(self, tensor: StagedInput) -> bool:
        return self._everything or id(tensor) in self._read

    def _full(self, wanted: int) -> StagingFull:
        return StagingFull(
            f"staging buffer full: {wanted} bytes wanted, {max(self._capacity - self._cursor, 0)} of"
            f" {self._capacity} free behind {self._count} staged inputs; input_bytes= sets how many there are"
        )


@final
class StagedInput(NDArray):
    """A tensor in the memory that the DSP reads; made by `create_input`, valid until `close`.

    Given to a run as it is, it is not copied. `numpy()` and everything else that reads it copies.

    Args:
        staging: where it lies.
        offset: at which byte.
        shape: its extents.
        dtype: its element type.
    """

    def __init__(self, staging: Staging, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.staging = staging
        self.offset = offset
        self._shape = shape
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return self._dtype.name

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self._shape, dtype=object)) * self._dtype.itemsize

    def numpy(self) -> Array:
        return self.staging.content(self).copy()

    def copyfrom(self, source: object) -> Self:
        """Copy from a tensor of the same shape; its elements are converted. Returns self.

        Raises:
            InputBusy: a run is reading it.
            StaleInput: it is gone.
            VmClosed: this is a forked process.
            InputShapeError: the shape is another.
            InputTypeError: `source` is no tensor of numbers.
        """
        self.staging.write(self, source)
        return self


Input: TypeAlias = Array | StagedInput
"""An input of a run."""


def _array(window: Window, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    found: Array = np.ndarray(shape, dtype, window.view, offset)
    return found
