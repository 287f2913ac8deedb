"""Devices that break a clause on files or frames; see `bent.py`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from repertory.models.errors import ArtifactError, ContractError, DeviceLost
from repertory.models.program import Artifact, Program
from repertory.models.spec import Array
from repertory.transports.device import Completion, Residency
from repertory.transports.frame import Fate, Frame
from repertory.transports.world import World

from .bent import Altered, Case, Gathering, Sound, breaks, done

__all__ = ["BENT"]

BENT: list[Case] = []
NUMBERS = count(1)


# -- open and prepare


@breaks(BENT, "capabilities", "it runs nothing")
class WithoutWindow(Sound):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.capabilities = replace(self.capabilities, window=0)


@breaks(BENT, "capabilities", "a bind changed them")
class WithOtherCapabilitiesAfterABind(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self.capabilities = replace(self.capabilities, stall=20.0)
        return await super().bind(program, evict=evict)


@breaks(BENT, "foreign_file", "raised KeyError")
class WithKeyErrors(Sound):
    def prepare(self, artifact: Artifact) -> Program:
        try:
            return super().prepare(artifact)
        except ArtifactError as error:
            raise KeyError(artifact.name) from error


@breaks(BENT, "foreign_file", "'empty' did not raise ArtifactError")
class TakingEmptyFiles(Sound):
    def prepare(self, artifact: Artifact) -> Program:
        return super().prepare(artifact) if artifact.data else Program("", "", (), 0, 0, image=None)


@breaks(BENT, "unknown_network", "did not raise UnknownModel")
class DeafToNetworks(Sound):
    def prepare(self, artifact: Artifact) -> Program:
        return super().prepare(replace(artifact, network=None))


@breaks(BENT, "identity", "was prepared as")
class WithFreshKeys(Sound):
    def prepare(self, artifact: Artifact) -> Program:
        program = super().prepare(artifact)
        return replace(program, key=f"{program.key}#{next(NUMBERS)}")


@breaks(BENT, "identity", "share the key")
class WithOneKey(Sound):
    def prepare(self, artifact: Artifact) -> Program:
        return replace(super().prepare(artifact), key="the key")


# -- frames


@breaks(BENT, "not_resident", "start before any bind did not raise")
class RunningAnything(Sound):
    def start(self, frame: Frame) -> None:
        try:
            super().start(frame)
        except ContractError:
            self.answer_later(done(frame))


@breaks(BENT, "one_completion", "got no completion")
class LosingAFrame(Sound):
    count = 0

    def report(self, completions: Sequence[Completion]) -> None:
        self.count += 1
        if self.count != 3:
            super().report(completions)


@breaks(BENT, "one_completion", "completed twice")
class CompletingTwice(Sound):
    def report(self, completions: Sequence[Completion]) -> None:
        super().report(completions)
        self.answer_later(*completions)


@breaks(BENT, "specified_outputs", "came as float64")
class WithAnotherDtype(Altered):
    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return outputs[0].astype(np.float64), *outputs[1:]


@breaks(BENT, "specified_outputs", r"came as float32\[10, 4, 1\]")
class WithAnotherShape(Altered):
    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return outputs[0][..., None], *outputs[1:]


@breaks(BENT, "specified_outputs", "2 outputs came")
class WithoutTheLastOutput(Altered):
    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return outputs[:-1]


@breaks(BENT, "one_completion", "FAILED without an error")
class FailingWithoutAReason(Altered):
    def alter(self, completion: Completion) -> Completion:
        return Completion(completion.frame, Fate.FAILED)


@breaks(BENT, "order", "in another order")
class OutOfOrder(Gathering):
    def all_of(self, completions: list[Completion]) -> list[Completion]:
        return completions[::-1]


@breaks(BENT, "not_inside_start", "from inside start")
class CompletingInsideStart(Sound):
    def start(self, frame: Frame) -> None:
        super().start(frame)
        self.completed([done(frame)])

    def report(self, completions: Sequence[Completion]) -> None:
        """The inner device comes too late."""


@breaks(BENT, "loop_thread", "from another thread")
class CompletingFromAThread(Sound):
    def report(self, completions: Sequence[Completion]) -> None:
        thread = threading.Thread(target=self.completed, args=(completions,))
        thread.start()
        thread.join()


@breaks(BENT, "full_window", "one frame more than the window")
class WithoutBound(RunningAnything):
    pass


@breaks(BENT, "full_window", "the refused frame was completed")
class RefusingTooLate(Sound):
    def start(self, frame: Frame) -> None:
        try:
            super().start(frame)
        except ContractError:
            self.answer_later(done(frame))
            raise


@breaks(BENT, "full_window", "too many")
class WithLessWindowThanItSays(Sound):
    out = 0

    def start(self, frame: Frame) -> None:
        if self.out == 4:
            raise ContractError("too many")
        super().start(frame)
        self.out += 1

    def report(self, completions: Sequence[Completion]) -> None:
        self.out -= len(completions)
        super().report(completions)


@breaks(BENT, "abandon", "got no completion")
class ForgettingTheAbandoned(Sound):
    left: Frame | None = None

    def abandon(self, frame: Frame) -> None:
        self.left = frame

    def report(self, completions: Sequence[Completion]) -> None:
        super().report([completion for completion in completions if completion.frame is not self.left])


@breaks(BENT, "abandon", "ended UNDONE")
class AbandoningAll(Altered):
    stopped = False

    def abandon(self, frame: Frame) -> None:
        self.stopped = True

    def alter(self, completion: Completion) -> Completion:
        error = DeviceLost("stopped", family="bent")
        return Completion(completion.frame, Fate.UNDONE, error=error) if self.stopped else completion
