"""The NPU's node: its queue of jobs, call by call."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceHung
from repertory.transports.xm_npu.errors import NpuRefusal

from .generation import KEEP, Capability, Generation, JobState
from .handle import Call, Handle
from .kernel import Kernel

__all__ = ["JobStatus", "NpuNode", "Step"]

_NO_QUEUE: Final = "there is no queue (the NPU was reset or aborted), or it has no such job"
_FOREIGN: Final = "the driver does not know this call: it is of another generation than {}"
_AGAIN: Final = frozenset({errno.EAGAIN, errno.EINTR})
_LONGEST: Final = (1 << 31) - 1  # milliseconds


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One job: a program in a window of the DDR.

    Attributes:
        code: offset of its instructions from `base`.
        size: bytes of them.
        base: physical address where the window begins.
        end: where it ends.
    """

    code: int
    size: int
    base: int
    end: int


@final
@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands.

    Attributes:
        job: its number.
        state: a `JobState`, or a number that nobody has published.
        report: DFX report of an abort that it is to blame for; else 0.
    """

    job: int
    state: int
    report: int

    @property
    def pending(self) -> bool:
        """Whether it waits or runs."""
        return self.state in {JobState.PEND, JobState.PROCESS}


@final
class NpuNode:
    """`/dev/npu.0`, opened; with a queue after `create_queue`.

    The queue is one for all processes, first in first out, and its job numbers begin at 1 whenever it is made
    anew. How a job ended can be learnt once, by `wait` or by `query`.

    Args:
        kernel: the system calls.
        path: of the node.
        generation: of the driver's tables.
        now: seconds.

    Raises:
        DeviceLost: the node is not there, or may not be used.
    """

    def __init__(self, kernel: Kernel, path: Path, generation: Generation, now: Callable[[], float]) -> None:
        self._handle = Handle(kernel, path, forbidden="be root, or give the node to your group")
        self._tables = generation
        self._now = now
        self._started = False
        self._queue = False
        self._unknown = {each: _FOREIGN.format(generation.name) for each in (errno.EINVAL, errno.ENOTTY)}

    @property
    def inherited(self) -> bool:
        """Whether this is a fork of the process that opened it."""
        return self._handle.inherited

    async def start(self) -> None:
        """Let the driver take the hardware, with a window over all addresses and every interrupt enabled."""
        params = bytearray(self._tables.open_params.pack(0, KEEP, 0, 1, 1, 1, 1, 0))
        await self._handle.call(Call("OPEN", self._tables.open, self._unknown), params)
        self._started = True

    async def create_queue(self) -> None:
        """Take part in the queue; where there is none it is made, with job numbers from 1."""
        await self._handle.call(Call("CREATE_QUEUE", self._tables.create_queue, self._unknown))
        self._queue = True

    async def submit(self, step: Step) -> int:
        """Queue a job and return its number.

        Raises:
            NpuRefusal: `status` EFAULT, there is no queue or the NPU is aborted; EBUSY, it is draining.
        """
        if not step.size:
            raise NpuRefusal("SUBMIT_JOB: a program of 0 bytes", call="SUBMIT_JOB", status=errno.EINVAL)
        params = bytearray(
            self._tables.start_params.pack(step.code, step.size, *(KEEP,) * 4, step.base, step.end)
        )
        meanings = {
            errno.EFAULT: "there is no queue, or the NPU is aborted",
            errno.EBUSY: "the NPU is draining: a job of a queue that is gone still runs",
            errno.EINVAL: self._unknown[errno.EINVAL],
        }
        return await self._handle.call(Call("SUBMIT_JOB", self._tables.submit, meanings), params)

    async def wait(self, job: int, timeout: float) -> JobStatus | None:
        """Wait until a job has ended; None once `timeout` seconds have passed without that.

        Raises:
            NpuRefusal: `status` EFAULT, there is no queue, or it has not got so far.
        """
        deadline = self._now() + timeout
        while True:
            left = math.ceil((deadline - self._now()) * 1000)
            try:
                # 0 would mean for ever
                return await self._ask("WAIT_JOB", self._tables.wait, job, min(max(left, 1), _LONGEST))
            except NpuRefusal as refusal:
                if refusal.status not in _AGAIN:  # EAGAIN: the time is over, or a signal came
                    raise
            if self._now() >= deadline:
                return None

    async def query(self, job: int) -> JobStatus:
        """Look at a job; where it has ended this is the one time that it tells how.

        Raises:
            NpuRefusal: as `wait`.
        """
        return await self._ask("QUERY_JOB", self._tables.query, job, 1)

    async def reset(self) -> None:
        """Stop the NPU and drop the queue, which has to be created again.

        Raises:
            DeviceHung: it does not stop.
        """
        meanings = {errno.EIO: "the NPU does not stop"}
        self._queue = False
        try:
            await self._handle.call(Call("RESET", self._tables.reset, meanings))
        except NpuRefusal as refusal:
            raise DeviceHung(str(refusal), family="xm-npu", call="RESET", status=refusal.status) from refusal

    async def capability(self, which: Capability) -> int:
        """Ask for one byte of what the NPU is."""
        argument = bytearray(self._tables.word.pack(which))
        return await self._handle.call(Call("GET_CAPABILITY", self._tables.get_capability), argument)

    async def destroy_queue(self) -> None:
        """Leave the queue, if we take part in it; the last one to leave drops its jobs.

        Raises:
            NpuRefusal: EPERM, a job ran on for 10 s and was left behind; the NPU is draining now.
        """
        meanings = {errno.EPERM: "a job still runs; it was left behind, and the NPU is draining"}
        if self._queue:
            self._queue = False
            await self._handle.call(Call("DESTROY_QUEUE", self._tables.destroy_queue, meanings))

    async def stop(self) -> None:
        """Give the hardware back, if it was taken."""
        if self._started:
            self._started = False
            await self._handle.call(Call("CLOSE", self._tables.close))

    def close(self) -> None:
        """Close the descriptor; the last one that anybody closes lets the hardware's clock stop."""
        self._handle.close()

    async def _ask(self, name: str, code: int, job: int, milliseconds: int) -> JobStatus:
        argument = bytearray(self._tables.job_status.pack(job, 0, 0, 0, milliseconds))
        await self._handle.call(Call(name, code, {errno.EFAULT: _NO_QUEUE}), argument)
        number, state, report, _, _ = self._tables.job_status.unpack(argument)
        return JobStatus(number, state, report)
