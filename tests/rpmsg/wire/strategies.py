"""Any job, and any reply that parses to itself."""

from __future__ import annotations

from hypothesis import strategies as st

from repertory.transports.rpmsg.errors import OutOfMemory
from repertory.transports.rpmsg.wire.messages import (
    INLINE_INPUTS,
    MAX_DIMS,
    MAX_INPUTS,
    MAX_REPEAT,
    Descriptor,
    Done,
    Inferred,
    IoMeta,
    Job,
    Loaded,
    Opcode,
    Pong,
    Reply,
    Span,
    StatusReply,
    WeightsLoaded,
)

__all__ = ["DESCRIPTORS", "I32", "JOBS", "OOMS", "U32", "U64", "replies"]

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
EXTENTS = st.lists(st.integers(0, 2**63 - 1), max_size=MAX_DIMS).map(tuple)
DESCRIPTORS = st.builds(Descriptor, U64, U64, I32, I32, EXTENTS, I32)
SPANS = st.builds(Span, U64, U32)
WIDE_SPANS = st.builds(Span, U64, U64)
OOMS = st.builds(OutOfMemory, U32, U32, U32)
OFF_ZERO = st.builds(Span, st.integers(1, 2**64 - 1), U32)
IO = st.builds(IoMeta, U32, U32, U64, U64, exact=st.booleans()).filter(
    lambda io: io != IoMeta(0, 0, 0, 0, exact=False)
)


def _jobs(inputs: int, table: st.SearchStrategy[Span | None]) -> st.SearchStrategy[Job]:
    tensors = st.lists(DESCRIPTORS, min_size=1, max_size=inputs).map(tuple)
    repeats = st.integers(1, MAX_REPEAT)
    return st.builds(Job, U32, tensors, repeats, U32, st.booleans(), table, WIDE_SPANS, WIDE_SPANS)


def _large(job: Job, times: int) -> Job:
    inputs = (job.inputs * times)[:MAX_INPUTS]
    return Job(job.handle, inputs, job.repeat, job.model, job.kv_resident, job.table, job.input, job.result)


JOBS = st.one_of(
    _jobs(INLINE_INPUTS, st.none()), st.builds(_large, _jobs(INLINE_INPUTS, SPANS), st.integers(1, 64))
)
"""Up to 4 inputs in the message, or up to 128 in a table."""


@st.composite
def _inferred(draw: st.DrawFn, version: int) -> Inferred:
    status = draw(st.sampled_from([0, 0, -7]) | I32)
    table = draw(st.none() | OFF_ZERO) if status >= 0 else None
    inline = status >= 0 and table is None
    outputs = tuple(draw(st.lists(DESCRIPTORS, max_size=5))) if inline else ()
    count = len(outputs) if outputs else draw(st.integers(65, 2**32 - 1)) if inline else draw(U32)
    required = draw(U64) if version == 3 and status == -7 else None
    head = draw(U32), status, draw(I32), draw(U64)
    return Inferred(*head, count, outputs, table, draw(U32), draw(OOMS), required)


def replies(version: int) -> st.SearchStrategy[Reply]:
    """Replies of a version: such as `parse` returns, so that a failed INFER has no outputs."""
    done = st.sampled_from([Opcode.DYN_UNLOAD, Opcode.MODEL_UNLOAD, Opcode.SET_PRINTF_BUF])
    return st.one_of(
        st.builds(Done, U32, I32, done),
        st.builds(Done, U32, st.integers(-(2**31), -1), st.sampled_from(list(Opcode))),
        st.builds(Pong, U32, I32, U32, U32),
        st.builds(StatusReply, U32, I32, U32, U32, U32, U32),
        st.builds(WeightsLoaded, U32, I32, U32, U32, OOMS),
        st.builds(Loaded, U32, I32, U32, OOMS, st.none() | IO if version == 3 else st.none()),
        _inferred(version),
    )
