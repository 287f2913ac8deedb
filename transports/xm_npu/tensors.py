"""Frames in an NPU's memory: how inputs are laid into a place, and outputs taken from it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from traceback import clear_frames

import numpy as np

from repertory.models import xmm_numbers
from repertory.models.spec import Array
from repertory.models.xmm_tensor import XmmTensor

from .npu import Place
from .program import Loadable

__all__ = ["stage", "take"]


def stage(arrays: Sequence[Array], model: Loadable, place: Place) -> None:
    """Copy inputs to where the NPU will read them, in its numbers and with its padding."""
    for array, tensor, view in zip(arrays, model.inputs, place.inputs, strict=True):
        stride = len(view) // model.batch
        for item, part in enumerate(np.split(array, model.batch) if model.batch > 1 else [array]):
            with _looking():
                xmm_numbers.write(part, tensor, view[item * stride : item * stride + tensor.size])


def take(model: Loadable, place: Place) -> tuple[Array, ...]:
    """Copy outputs from where the NPU has written them, as the caller wants them."""
    return tuple(
        _taken(view, tensor, model) for tensor, view in zip(model.outputs, place.outputs, strict=True)
    )


def _taken(view: memoryview, tensor: XmmTensor, model: Loadable) -> Array:
    stride = len(view) // model.batch
    with _looking():
        items = [
            xmm_numbers.read(view[at * stride : at * stride + tensor.size], tensor, native=model.native)
            for at in range(model.batch)
        ]
    return items[0] if model.batch == 1 else np.concatenate(items)


@contextmanager
def _looking() -> Generator[None]:
    """Let an error keep no part of the memory, which could not be given back while somebody has it."""
    try:
        yield
    except Exception as error:
        clear_frames(error.__traceback__)
        raise
