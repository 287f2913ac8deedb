"""Devices that break a clause on answers; see `bent.py`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np

from repertory.models.program import Program
from repertory.models.spec import Array
from repertory.transports.answers import hash_answer
from repertory.transports.device import Completion, Residency
from repertory.transports.frame import Frame
from repertory.transports.world import World

from .bent import Altered, Case, Gathering, Sound, breaks, done

__all__ = ["BENT"]

BENT: list[Case] = []
NUMBERS = count(1)


# -- answers


@breaks(BENT, "answers", "two inputs have the same answer")
class WithOneAnswer(Altered):
    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return tuple(np.zeros_like(array) for array in outputs)


@breaks(BENT, "answers", "the same input has two answers")
class WithWhims(Altered):
    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return tuple(array + array.dtype.type(next(NUMBERS) % 7) for array in outputs)


@breaks(BENT, "all_at_once", "another than alone")
class MixingUpAnswers(Gathering):
    def all_of(self, completions: list[Completion]) -> list[Completion]:
        outputs = [completion.outputs for completion in completions]
        turned = [*outputs[1:], outputs[0]]
        return [done(each.frame, *other) for each, other in zip(completions, turned, strict=True)]


@breaks(BENT, "interleaved", "another than alone")
class MixingUpPrograms(Altered):
    """Answers as the program of the frame that was started last."""

    last: Frame

    def start(self, frame: Frame) -> None:
        super().start(frame)
        self.last = frame

    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return hash_answer(self.last.network, frame.inputs)


@breaks(BENT, "interleaved", "a bind beside a frame changes")
class OverwritingWhatRunsAtABind(Altered):
    running = 0
    spoiled = 0

    def start(self, frame: Frame) -> None:
        super().start(frame)
        self.running += 1

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self.spoiled = self.running
        return await super().bind(program, evict=evict)

    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        self.running -= 1
        if not self.spoiled:
            return outputs
        self.spoiled -= 1
        return tuple(np.zeros_like(output) for output in outputs)


@breaks(BENT, "swap_back", "has other answers than before")
class ForgettingWeights(Altered):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.binds: dict[str, int] = {}

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        if program is not None:
            self.binds[program.name] = self.binds.get(program.name, 0) + 1
        return await super().bind(program, evict=evict)

    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return tuple(array * array.dtype.type(self.binds[frame.network.name]) for array in outputs)


@breaks(BENT, "inputs", "an input was changed")
class WritingIntoInputs(Altered):
    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        for array in frame.inputs:
            if array.flags.writeable:
                array[...] = 0
        return outputs


@breaks(BENT, "inputs", "is not contiguous")
class WantingContiguousInputs(Sound):
    def start(self, frame: Frame) -> None:
        if not all(array.flags.c_contiguous for array in frame.inputs):
            raise ValueError("ndarray is not contiguous")
        super().start(frame)


@breaks(BENT, "inputs", "changes the answer")
class ReadingMemoryAsItLies(Altered):
    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        lie = [np.frombuffer(array.tobytes("A"), np.uint8) for array in frame.inputs]
        return hash_answer(frame.network, lie)


@breaks(BENT, "outputs_stay", "an output was overwritten")
class WithOneOutputBuffer(Altered):
    buffers: tuple[Array, ...] | None = None

    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        if self.buffers is None:
            self.buffers = outputs
        for buffer, array in zip(self.buffers, outputs, strict=True):
            buffer[...] = array
        return self.buffers
