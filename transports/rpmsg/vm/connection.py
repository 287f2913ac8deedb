"""One connection with the module loaded: driver code, of one caller at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Self, cast, final

import numpy as np

from repertory.models.errors import DeviceError, DeviceHung
from repertory.models.program import Network
from repertory.models.spec import Array
from repertory.transports.rpmsg.client import Request, refusal
from repertory.transports.rpmsg.engine import RUN_BOUND
from repertory.transports.rpmsg.errors import Status
from repertory.transports.rpmsg.session import OPEN_BOUND, Session
from repertory.transports.rpmsg.tensors import read_outputs
from repertory.transports.rpmsg.wire import requests
from repertory.transports.rpmsg.wire.messages import Inferred, Job, Opcode, Span

from .connect import Target
from .errors import DspRestarted
from .inputs import check_signature
from .module_file import ModuleFile
from .staging import Input, Staging

__all__ = ["SETTLE_BOUND", "SLICE", "Connection"]

SLICE: Final = 0.2
"""Longest wait in seconds without a look at the time-out; a Ctrl-C comes through."""

SETTLE_BOUND: Final = 15.0
"""Seconds that a run which nobody waits for any more may still take before the connection is given up."""

_FORGOTTEN: Final = frozenset({Status.HANDLE, Status.SYMBOL})  # what a restarted DSP says of a handle


@final
class Connection:
    """A session with a module, memory for its inputs, and one place for results.

    Attributes:
        staging: the memory for inputs.
        owed: whether a run has begun whose end nobody has seen: the DSP may still read and write.
        cycles: of the last run that succeeded.
        network: the module's tensors, or None where nothing tells.
    """

    def __init__(
        self, session: Session, staging: Staging, now: Callable[[], float], network: Network | None
    ) -> None:
        self.staging = staging
        self.network = network
        self.owed = False
        self.cycles = 0
        self._session = session
        self._now = now

    @classmethod
    async def open(
        cls,
        target: Target,
        module: Callable[[bool], ModuleFile],
        *,
        sizes: tuple[int | None, int | None],
        on_busy: Callable[[], None],
    ) -> Self:
        """Connect and load.

        Args:
            target: which DSP.
            module: reads the file, for a simulated DSP or a real one.
            sizes: bytes for inputs and for outputs; None as the module needs.
            on_busy: as for `Staging`.

        Raises:
            ArtifactError: the module does not fit, or is for no such DSP.
            DspRefusal: the firmware does not load it.
            DeviceError: there is no such DSP. Nothing is left open after any error.
        """
        dsp, now = target.connect(), target.world.now
        file = module(dsp.simulated)
        session = await Session.open(dsp, target.ledger, now=now, bound=OPEN_BOUND, pipelined=False)
        try:
            shared = session.client.wire.names_result
            need, capacity = file.need(shared=shared, inputs=sizes[0], outputs=sizes[1])
            await session.load(file.data, need)
            staging = Staging(session.workspace.slots[0], capacity, on_busy=on_busy)
        except BaseException:
            session.close()
            raise
        return cls(session, staging, now, file.network)

    def check(self, inputs: Sequence[Input]) -> None:
        """Look whether the inputs are those of the module, as far as that is known, and fit.

        Raises:
            InputCountError, InputTypeError, InputShapeError: the module does not take them.
            StagingFull, StaleInput: as `Staging.check`.
        """
        if self.network is not None:
            check_signature(inputs, self.network.inputs)
        self.staging.check(inputs)

    async def run(self, inputs: Sequence[Input], *, timeout: float) -> list[Array]:
        """Run once; the arrays lie in the memory for results.

        Args:
            inputs: what `check` has let through.
            timeout: seconds until the DSP must have answered.

        Raises:
            DspRefusal: the DSP does not do it.
            DeviceHung: it has not answered within `timeout` seconds; the run is `owed`.
            DspRestarted: it does not know the module any more.
            DeviceLost: the endpoint is gone, or the memory failed.
            DeviceError: its answer was lost, or is absurd.
        """
        self.owed = True
        self.staging.hold(inputs, everything=not self._session.workspace.split)
        request = await self._answered(self._job(inputs), timeout)
        try:
            return self._outputs(request)
        finally:
            self._settled()  # not before: what is written until the sync would be lost with it

    async def settle(self, *, bound: float = SETTLE_BOUND) -> None:
        """Wait for the end of what is owed, behind which the DSP answers a PING.

        Raises:
            DeviceError: it does not, or has restarted: nothing more is to be had of this connection.
        """
        if self.owed:
            await self._session.check(self._now(), bound=bound)
            self._settled()

    async def leave(self) -> None:
        """Unload, once the DSP is idle.

        Raises:
            DeviceError: it is not in time, or did not answer.
        """
        await self.settle()
        await self._session.unload()

    def close(self, why: str) -> None:
        """Give the memory and the endpoint back; staged inputs raise from now on. Any number of times."""
        self.staging.end(why)
        self._session.close()

    def _settled(self) -> None:
        self.owed = False
        self.staging.release()

    def _job(self, inputs: Sequence[Input]) -> Job:
        workspace = self._session.workspace
        slot, area = workspace.slots[0], workspace.areas[0]
        staged = self.staging.lay(inputs)
        return Job(
            self._session.handle,
            staged.descriptors,
            table=staged.table,
            input=Span(slot.address, slot.size),
            result=Span(area.address, area.size),
        )

    async def _answered(self, job: Job, timeout: float) -> Request:
        """Send a job and wait for its answer.

        After a long silence a PING goes behind it: if that is answered first, the answer was lost.
        """
        client, deadline = self._session.client, self._now() + timeout
        request = await self._posted(job, deadline)
        ask_at, asked = self._now() + RUN_BOUND, False
        while (now := self._now()) < deadline:
            if request in await client.receive(min(deadline - now, SLICE)):
                return request
            if not asked and self._now() >= ask_at:
                asked = client.post(Opcode.PING, requests.ping) is not None
        raise DeviceHung(f"no answer within {timeout:g} s", family="c7x", call=request.call.name)

    async def _posted(self, job: Job, deadline: float) -> Request:
        client = self._session.client
        call = Opcode.INFER if job.table is None else Opcode.INFER_LARGE
        while (request := client.post(call, partial(client.wire.infer, job=job))) is None:
            if (now := self._now()) >= deadline:
                raise DeviceHung("the DSP takes no message", family="c7x", call=call.name)
            await client.receive(min(max(client.next_offer - now, 0.0), SLICE))
        return request

    def _outputs(self, request: Request) -> list[Array]:
        reply = request.reply
        if reply is None:
            raise DeviceError("the answer was lost", family="c7x", call=request.call.name)
        if reply.status in _FORGOTTEN:
            restarted = DspRestarted(
                "the DSP has restarted: it does not know the module any more; the next call connects again"
            )
            restarted.status = reply.status
            raise restarted from refusal(request)
        if reply.status < 0:
            raise refusal(request)
        assert isinstance(reply, Inferred), "of the kind that was asked for, and no refusal"
        outputs = read_outputs(reply, self._session.workspace.areas[0])
        self.cycles = reply.cycles
        return [_readonly(output) for output in outputs]


def _readonly(array: Array) -> Array:
    """Return an array that cannot be made writable again."""
    content = memoryview(cast("bytes", array.reshape(-1).view(np.uint8))).toreadonly()
    return np.frombuffer(content, np.uint8).view(array.dtype).reshape(array.shape)
