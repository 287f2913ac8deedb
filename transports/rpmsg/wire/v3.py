"""Version 3: every request names its memory, and the module tells what it wants."""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final, final

from .messages import Job, Opcode, Reply
from .replies import KINDS, inferred, loaded, parse
from .requests import HEADER, infer
from .wire import Wire

__all__ = ["V3"]

_INFER: Final = Struct(HEADER + "IIIIQQQQ")
_INFER_LARGE: Final = Struct(HEADER + "IIIIQIIQQQQ")
_KINDS: Final = {
    **KINDS,
    Opcode.DYN_LOAD: loaded(Struct("<IIIIIIQQIII")),
    Opcode.INFER: inferred(Struct("<iQIIQIIIIQ")),
}


@final
class V3(Wire):
    """Version 0x03mmpp. Requests with results of their own may be outstanding together."""

    major: ClassVar[int] = 3
    names_result: ClassVar[bool] = True
    sets_printf: ClassVar[bool] = True

    def infer(self, seq: int, job: Job) -> bytes:
        memory = (job.input.address, job.input.size, job.result.address, job.result.size)
        return infer(seq, job, _INFER, _INFER_LARGE, *memory)

    def parse(self, message: bytes) -> Reply:
        return parse(message, _KINDS)
