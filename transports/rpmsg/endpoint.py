"""The lowest interface for messages: one rpmsg endpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

__all__ = ["CREDITS", "MTU", "Endpoint"]

MTU: Final = 496
"""Bytes of a message: an rpmsg buffer of 512 without its header of 16."""

CREDITS: Final = 256
"""Messages on their way to the DSP, over all endpoints of one core."""


class Endpoint(ABC):
    """Messages to and from one DSP, whole and in order; used by one driver loop.

    Once lost an endpoint stays so: every call but `wake` and `close` raises DeviceLost.
    """

    @abstractmethod
    def send(self, message: bytes) -> bool:
        """Hand over one message; False where no buffer is free.

        Nothing ever tells when one becomes free: try again after a while, and after each received message.

        Raises:
            ContractError: the message is empty or longer than `MTU`; nothing was sent.
            DeviceLost: the endpoint is gone.
        """

    @abstractmethod
    async def receive(self, timeout: float | None) -> bytes | None:
        """Wait for the next message; None after `timeout` seconds, or earlier by `wake`.

        What has arrived comes first: with messages there a wake-up is kept for the next call.

        Raises:
            DeviceLost: the endpoint is gone; what had arrived before may be lost with it.
        """

    @abstractmethod
    def wake(self) -> None:
        """Let `receive` return, or the next one if none is waiting. From any thread, also after `close`."""

    @abstractmethod
    def close(self) -> None:
        """Give the endpoint back. Any number of times."""
