"""Clauses of the device contract on bind, probe and close; see `conformance.py`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import anyio
from anyio.lowlevel import checkpoint

from repertory.models.errors import ArtifactError, ContractError, DeviceError
from repertory.models.program import Program

from .device import Residency
from .trial import Clause, Trial, refused, require

__all__ = ["CLAUSES"]


# -- bind


async def _foreign_program(trial: Trial) -> None:
    """`bind` refuses a program of another family with ArtifactError: what it evicts is gone, no more."""
    one, two = await trial.open()
    stranger = replace(two, key="stranger", image=object())
    (frame,), (other,) = trial.frames(one, 1), trial.frames(two, 1)
    await trial.bind(one)
    if trial.device.capabilities.residents > 1:
        await _refused_bind(trial, stranger)
        await trial.infer_singly([frame])
    await _refused_bind(trial, stranger, one)
    for gone in (frame, *trial.frames(stranger, 1)):
        with refused(ContractError, f"start of {gone} after the failed bind"):
            trial.start(gone)
    await trial.bind(two)
    await trial.infer(other)
    await trial.bind(one, two)
    await trial.infer(frame)


async def _shielded_bind(trial: Trial) -> None:
    """A bind whose caller is cancelled goes on to its end."""
    one, two = await trial.open()
    frames, others = trial.frames(one, 1), trial.frames(two, 1)
    await _cancelled_bind(trial, one, steps=0)
    before = await trial.infer_singly(frames)
    await _cancelled_bind(trial, two, one, steps=1)
    await trial.infer_singly(others)
    await _cancelled_bind(trial, one, two, steps=2)
    require(await trial.infer_singly(frames) == before, "the answers are other than before")


async def _evict(trial: Trial) -> None:
    """bind(None) frees programs, resident or not, and they may come back."""
    one, two = await trial.open()
    frames = trial.frames(one, 2)
    await trial.bind(one)
    before = await trial.infer_singly(frames)
    for _ in range(2):
        await trial.free(one, two)
        with refused(ContractError, "start of a freed program"):
            trial.start(trial.again(frames[0]))
    await trial.bind(one)
    require(await trial.infer_singly(frames) == before, "the answers are other than before")


# -- probe and close


async def _probe(trial: Trial) -> None:
    """`probe` tells a sound device's health, before and after a bind."""
    program, _ = await trial.open()
    with anyio.fail_after(trial.subject.patience):
        before = await trial.device.probe()
        await trial.bind(program)
        after = await trial.device.probe()
    require(before.well and after.well, f"it is not well: {before}, {after}")


async def _probe_beside(trial: Trial) -> None:
    """`probe` disturbs neither frames nor a bind, on a device that does not ask for peace meanwhile."""
    one, two = await trial.open()
    if trial.device.capabilities.probe_needs_idle:
        return
    residency = await trial.bind(one)
    frames = trial.frames(one, residency.window)
    expected = await trial.infer_singly(frames)
    trial.start(*frames)
    with anyio.fail_after(trial.subject.patience):
        well = (await trial.device.probe()).well
    require(well, "it is not well with frames in flight")
    require([await trial.answer(frame) for frame in frames] == expected, "a probe changed answers")
    async with anyio.create_task_group() as beside:
        beside.start_soon(trial.bind, two, one)
        with anyio.fail_after(trial.subject.patience):
            well = (await trial.device.probe()).well
    require(well, "it is not well during a bind")


async def _close_in_flight(trial: Trial) -> None:
    """When a close returns, every frame in flight has its completion, and nothing is called any more."""
    program, residency = await trial.open_bound()
    frames = trial.frames(program, residency.window + 1)
    trial.start(*frames[:-1])
    await trial.land(frames[0])  # so that others are under way
    trial.start(frames[-1])
    await trial.close()
    lost = sum(frame not in trial.landed for frame in frames)
    require(not lost, f"{lost} of {len(frames)} frames got no completion")


async def _close_in_time(trial: Trial) -> None:
    """A close ends within its bound."""
    program, residency = await trial.open_bound()
    trial.start(*trial.frames(program, residency.window))
    began = anyio.current_time()
    await trial.close()
    took = anyio.current_time() - began - trial.subject.quiet
    require(took <= trial.subject.bound, f"it took {took} s, {trial.subject.bound} s were given")


async def _close_again(trial: Trial) -> None:
    """A device may be closed before it is open, and twice."""
    await trial.close()
    later = trial.successor()
    await later.open_bound()
    await later.close()
    await later.close()


async def _closed(trial: Trial) -> None:
    """Before a device is open and after it was closed, bind, start and probe raise DeviceError."""
    program, _ = await (other := trial.successor()).open_bound()
    await other.close()
    await _refuses_all(trial, program)
    await trial.open()
    await trial.close()
    await _refuses_all(trial, program)


async def _shielded_close(trial: Trial) -> None:
    """A close whose caller is cancelled goes on to its end."""
    program, residency = await trial.open_bound()
    frames = trial.frames(program, residency.window)
    trial.start(*frames)
    await checkpoint()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await trial.device.close(bound=trial.subject.bound)
    require(all(frame in trial.landed for frame in frames), "frames in flight got no completion")
    await _refuses_all(trial, program)


async def _close_during_bind(trial: Trial) -> None:
    """A close may come in the middle of a bind: both end, and the device is closed."""
    program, _ = await trial.open()

    async def bind() -> None:
        with suppress(DeviceError):
            await trial.device.bind(program)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bind)
        await checkpoint()
        await trial.close()
    await _refuses_all(trial, program)


async def _reopen(trial: Trial) -> None:
    """After a close a fresh device opens, and gives the same answers."""
    program, residency = await trial.open_bound()
    frames = trial.frames(program, residency.window)
    before = await trial.infer_singly(frames)
    trial.start(*(trial.again(frame) for frame in frames))
    await trial.close()
    later = trial.successor()
    await later.open()
    await later.bind(program)
    after = await later.infer_singly(frames)
    require(after == before, "the answers are other than before")


async def _cancelled_bind(trial: Trial, program: Program, *evict: Program, steps: int) -> None:
    """Bind a program, and cancel the caller after so many steps of the event loop."""
    scope, residencies = anyio.CancelScope(), list[Residency | None]()

    async def bind() -> None:
        with scope:
            residencies.append(await trial.device.bind(program, evict=evict))

    with anyio.fail_after(trial.subject.patience):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bind)
            for _ in range(steps):
                await checkpoint()
            scope.cancel()
    require(residencies, "the bind did not return to its cancelled caller")
    trial.checked(residencies[0], program)


async def _refused_bind(trial: Trial, program: Program, *evict: Program) -> None:
    with refused(ArtifactError, "bind of a program of another family"):
        await trial.bind(program, *evict)


async def _refuses_all(trial: Trial, program: Program) -> None:
    with refused(DeviceError, "bind"):
        await trial.bind(program)
    with refused(DeviceError, "bind(None)"):
        await trial.free(program)
    with refused(DeviceError, "start"):
        trial.start(*trial.frames(program, 1))
    with refused(DeviceError, "probe"):
        await trial.device.probe()


CLAUSES: tuple[Clause, ...] = (
    _foreign_program,
    _shielded_bind,
    _evict,
    _probe,
    _probe_beside,
    _close_in_flight,
    _close_in_time,
    _close_again,
    _closed,
    _shielded_close,
    _close_during_bind,
    _reopen,
)
