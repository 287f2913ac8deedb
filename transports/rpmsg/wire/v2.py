"""Version 2: staging, KV cache and result lie at fixed addresses, so no request names them."""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final, final

from .messages import Job, Opcode, Reply
from .replies import KINDS, inferred, loaded, parse
from .requests import HEADER, infer
from .wire import Wire

__all__ = ["V2"]

_INFER: Final = Struct(HEADER + "IIII")
_INFER_LARGE: Final = Struct(HEADER + "IIIIQII")
_KINDS: Final = {
    **KINDS,
    Opcode.DYN_LOAD: loaded(Struct("<IIIIII")),
    Opcode.INFER: inferred(Struct("<iQIIQIIII")),
}


@final
class V2(Wire):
    """Version 0x02mmpp. A result has one place, so one request may be outstanding."""

    major: ClassVar[int] = 2
    names_result: ClassVar[bool] = False
    sets_printf: ClassVar[bool] = False

    def infer(self, seq: int, job: Job) -> bytes:
        return infer(seq, job, _INFER, _INFER_LARGE)

    def parse(self, message: bytes) -> Reply:
        return parse(message, _KINDS)
