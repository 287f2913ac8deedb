"""A wire version: how requests become bytes, and bytes replies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from .messages import Job, Reply

__all__ = ["Wire"]


class Wire(ABC):
    """One version of the protocol. Every method is pure; `seq` is a u32.

    The first PING may be sent by any version: request and reply are the same in all, and the reply's
    major version tells which to go on with.

    Attributes:
        major: of the protocol.
        names_result: whether a request tells where its result goes, so that several may be outstanding.
        sets_printf: whether SET_PRINTF_BUF must follow the open.
    """

    major: ClassVar[int]
    names_result: ClassVar[bool]
    sets_printf: ClassVar[bool]

    @abstractmethod
    def infer(self, seq: int, job: Job) -> bytes:
        """INFER, or INFER_LARGE where `job.table` is given. At most 496 bytes.

        Raises:
            ValueError: what the message cannot say: no inputs or more than 128, more than 4 without a
                table, more than 6 extents, a repeat beyond its 16 bits.
        """

    @abstractmethod
    def parse(self, message: bytes) -> Reply:
        """Read any reply.

        Raises:
            Malformed: it is none.
        """
