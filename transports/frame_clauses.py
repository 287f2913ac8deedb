"""Clauses of the device contract on files, frames and answers; see `conformance.py`."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from repertory.models.errors import ArtifactError, ContractError, UnknownModel
from repertory.models.program import Artifact
from repertory.models.spec import Array

from .frame import Outcome
from .trial import Clause, Trial, refused, require

__all__ = ["CLAUSES"]


# -- open and prepare


async def _capabilities(trial: Trial) -> None:
    """Once open, a device has capabilities that make sense, and keeps them."""
    program, _ = await trial.open()
    has = trial.device.capabilities
    require(has.family, "it is of no family")
    require(min(has.window, has.residents) >= 1, f"it runs nothing: {has}")
    require(has.memory is None or has.memory > 0, f"its memory is {has.memory}")
    require(has.lease_slots >= 0, f"it lends {has.lease_slots} buffers")
    require(has.stall > 0, f"it may be taken for hung after {has.stall} s")
    await trial.bind(program)
    require(trial.device.capabilities == has, "a bind changed them")


async def _foreign_file(trial: Trial) -> None:
    """`prepare` refuses a file that is not for the device with ArtifactError, and goes on working."""
    await trial.open()
    whole = trial.subject.artifacts[0]
    torn = Artifact("torn", whole.data[: len(whole.data) // 2])
    for artifact in (trial.subject.foreign, Artifact("empty", b""), torn):
        with refused(ArtifactError, f"prepare of the file {artifact.name!r}"):
            trial.device.prepare(artifact)
    trial.device.prepare(whole)


async def _unknown_network(trial: Trial) -> None:
    """`prepare` refuses a network that the file does not hold with UnknownModel."""
    await trial.open()
    with refused(UnknownModel, "prepare with a made-up network"):
        trial.device.prepare(replace(trial.subject.artifacts[0], network="no such network"))


async def _identity(trial: Trial) -> None:
    """Programs of one file have equal keys, those of two files have not, and every one holds a network."""
    one, two = await trial.open()
    again = trial.device.prepare(trial.subject.artifacts[0])
    require(again.key == one.key, f"{one.name} was prepared as {one.key}, then as {again.key}")
    require(two.key != one.key, f"{one.name} and {two.name} share the key {one.key}")
    require(one.networks and two.networks, "a program holds no network")
    require(min(one.footprint, one.scratch, two.footprint, two.scratch) >= 0, "a size is negative")


# -- frames


async def _not_resident(trial: Trial) -> None:
    """`start` refuses a frame whose program was not bound, or was evicted, with ContractError."""
    one, two = await trial.open()
    frame, other = *trial.frames(one, 1), *trial.frames(two, 1)
    with refused(ContractError, "start before any bind"):
        trial.start(frame)
    await trial.bind(one)
    with refused(ContractError, "start of a program that was not bound"):
        trial.start(other)
    await trial.bind(two, one)
    with refused(ContractError, "start of an evicted program"):
        trial.start(frame)
    await trial.infer(other)


async def _one_completion(trial: Trial) -> None:
    """Each started frame gets exactly one completion."""
    program, residency = await trial.open_bound()
    for count in (1, residency.window, residency.window):
        frames = trial.frames(program, count)
        trial.start(*frames)
        await trial.land(*frames)


async def _specified_outputs(trial: Trial) -> None:
    """A frame that is DONE has the outputs that its network specifies: their count, shapes and dtypes."""
    program, _ = await trial.open_bound()
    await trial.infer_singly(trial.frames(program, len(program.networks)))


async def _order(trial: Trial) -> None:
    """Completions come in the order of starting, for each network."""
    program, residency = await trial.open_bound()
    frames = trial.frames(program, residency.window * 3)
    waiting = iter(frames)
    for frame in frames:
        room = residency.window - (trial.started - len(trial.landed))
        trial.start(*(next(waiting) for _ in range(min(room, len(frames) - trial.started))))
        await trial.land(frame)
    for network in program.networks:
        came = [frame for frame in trial.landed if frame.network is network]
        went = [frame for frame in frames if frame.network is network]
        require(came == went, f"frames of {network.name} came back in another order than they went")


async def _not_inside_start(trial: Trial) -> None:
    """`completed` is never called from inside `start`."""
    program, _ = await trial.open_bound()
    await trial.infer(*trial.frames(program, 1))
    trial.judge()


async def _loop_thread(trial: Trial) -> None:
    """`completed` is called on the event loop's thread."""
    program, _ = await trial.open_bound()
    await trial.infer(*trial.frames(program, 1))
    trial.judge()


async def _full_window(trial: Trial) -> None:
    """A window's frames are accepted at once, and one more is refused with ContractError."""
    program, residency = await trial.open_bound()
    for _ in range(2):
        *frames, extra = trial.frames(program, residency.window + 1)
        trial.start(*frames)
        with refused(ContractError, f"start of one frame more than the window of {residency.window}"):
            trial.start(extra)
        await trial.land(*frames)
        require(extra not in trial.landed, "the refused frame was completed")


async def _abandon(trial: Trial) -> None:
    """An abandoned frame still gets its completion, and its neighbours their answers."""
    program, residency = await trial.open_bound()
    frames = trial.frames(program, residency.window)
    expected = await trial.infer_singly(frames)
    left = frames[len(frames) // 2]
    trial.start(*frames)
    left.settle(Outcome.CANCELLED)
    trial.device.abandon(left)
    await trial.land(left)
    others = [(frame, answer) for frame, answer in zip(frames, expected, strict=True) if frame is not left]
    for frame, answer in others:
        require(await trial.answer(frame) == answer, "a neighbour got another answer than alone")


# -- answers


async def _answers(trial: Trial) -> None:
    """The same input has the same answer, and different inputs have different ones."""
    program, _ = await trial.open_bound()
    for network in range(len(program.networks)):
        frames = trial.frames(program, network + 1)[-1:], trial.frames(program, network + 1)[-1:]
        one, two = await trial.infer_singly([*chain(*frames)])
        again, _ = await trial.infer_singly([*chain(*frames)])
        require(one == again, "the same input has two answers")
        require(one != two or not trial.subject.answers, "two inputs have the same answer")


async def _all_at_once(trial: Trial) -> None:
    """Frames that fly together have the answers that they have alone."""
    program, residency = await trial.open_bound()
    frames = trial.frames(program, residency.window)
    expected = await trial.infer_singly(frames)
    require(await trial.infer(*frames) == expected, "a frame's answer is another than alone")


async def _interleaved(trial: Trial) -> None:
    """Programs that are resident together do not disturb each other, nor does a bind beside frames."""
    one, two = await trial.open()
    has = trial.device.capabilities
    if has.residents == 1:
        return
    windows = [(await trial.bind(one)).window]
    early = trial.frames(one, windows[0])
    trial.start(*early)
    if has.bind_needs_idle:
        await trial.land(*early)
    windows.append((await trial.bind(two)).window)
    answers = [await trial.answer(frame) for frame in early]
    require(answers == await trial.infer_singly(early), "a bind beside a frame changes its answer")
    pairs = [trial.frames(program, min(windows)) for program in (one, two)]
    frames = [*chain(*zip(*pairs, strict=True))]
    expected = await trial.infer_singly(frames)
    require(await trial.infer(*frames) == expected, "a frame's answer is another than alone")


async def _swap_back(trial: Trial) -> None:
    """A program that comes back after a swap gives the answers that it gave before."""
    one, two = await trial.open()
    frames, others = trial.frames(one, 2), trial.frames(two, 2)
    await trial.bind(one)
    expected = await trial.infer_singly(frames)
    await trial.bind(two, one)
    between = await trial.infer_singly(others)
    await trial.bind(one, two)
    require(await trial.infer_singly(frames) == expected, f"{one.name} has other answers than before")
    await trial.bind(two, one)
    require(await trial.infer_singly(others) == between, f"{two.name} has other answers than before")


async def _inputs(trial: Trial) -> None:
    """Inputs may be read-only and in any memory order, and are never changed."""
    program, _ = await trial.open_bound()
    (frame,) = trial.frames(program, 1)
    before = [array.copy() for array in frame.inputs]
    (expected,) = await trial.infer_singly([frame])
    for form in (_read_only, _strided, _column_major):
        like = trial.again(frame, [form(array) for array in before])
        (answer,) = await trial.infer(like)
        require(answer == expected, "the memory order of an input changes the answer")
        for array, kept in zip((*like.inputs, *frame.inputs), (*before, *before), strict=True):
            require(np.array_equal(array, kept), "an input was changed")


async def _outputs_stay(trial: Trial) -> None:
    """Outputs are not overwritten by later frames, nor by a swap."""
    one, two = await trial.open()
    residency = await trial.bind(one)
    frames = trial.frames(one, residency.window)
    expected = await trial.infer(*frames)
    for _ in range(2):
        await trial.infer(*trial.frames(one, residency.window))
    await trial.bind(two, one)
    await trial.infer(*trial.frames(two, 1))
    for frame, answer in zip(frames, expected, strict=True):
        require(await trial.answer(frame) == answer, "an output was overwritten")


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _column_major(array: Array) -> Array:
    return np.array(array, order="F")


def _strided(array: Array) -> Array:
    """Return an equal view that skips every other element of its last axis."""
    if not array.ndim:
        return array
    wide = np.repeat(array, 2, axis=-1)
    wide[..., 1::2] = 0
    return wide[..., ::2]


CLAUSES: tuple[Clause, ...] = (
    _capabilities,
    _foreign_file,
    _unknown_network,
    _identity,
    _not_resident,
    _one_completion,
    _specified_outputs,
    _order,
    _not_inside_start,
    _loop_thread,
    _full_window,
    _abandon,
    _answers,
    _all_at_once,
    _interleaved,
    _swap_back,
    _inputs,
    _outputs_stay,
)
