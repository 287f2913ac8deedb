"""The lowest interface of the MX3 family: one method for each libmemx function that is needed.

Everything above sees libmemx through `Libmemx` and cannot tell the vendor's library (`binding.py`) from
the simulated one (`simulator.py`). Names, arguments and their order are the vendor's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

from repertory.models.errors import ConfigError
from repertory.models.spec import Array

__all__ = ["FlowSize", "Libmemx"]

FlowSize: TypeAlias = tuple[int, int, int, int, int, int]
"""Status, height, width, z, channel number, format; zeros after a status that is not OK."""


class Libmemx(ABC):
    """libmemx, async-coloured: the real binding blocks and never suspends, the simulator may do either.

    Every method returns the status as an unsigned 32-bit number, followed by what the C function writes
    through its pointers. No status is turned into an exception here. Calls are made from driver loops, and
    may be made from several at once. Nothing but a timeout bounds a call, and only the stream calls have one.

    Attributes:
        simulated: whether no hardware stands behind it.
        version: the library's own version, such as `2.11.2`, or `unknown`.
        exports: names of the optional functions that may be called. `memx_reconfigure` is one: the library
            lost it in version 2.10.
    """

    simulated: bool
    version: str
    exports: frozenset[str]

    def require(self, name: str) -> None:
        """Check that an optional function may be called.

        Raises:
            ConfigError: it is not among `exports`.
        """
        if name not in self.exports:
            raise ConfigError(f"libmemx {self.version} does not export {name}")

    @abstractmethod
    async def memx_trylock(self, group_id: int) -> int:
        """Take the advisory lock of a group, or return GROUP_IN_USE at once."""

    @abstractmethod
    async def memx_unlock(self, group_id: int) -> int:
        """Release the lock; OK too where nobody holds it."""

    @abstractmethod
    async def memx_open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        """Open a context on a group, or count one more use of it. `chip_gen` is ignored."""

    @abstractmethod
    async def memx_close(self, model_id: int) -> int:
        """Count one use less; the last one frees the context and its queues."""

    @abstractmethod
    async def memx_reconfigure(self, model_id: int, group_id: int) -> int:
        """Bind a context to a group, with nothing loaded afterwards; no transfer may be in flight.

        Raises:
            ConfigError: it is not among `exports`.
        """

    @abstractmethod
    async def memx_config_mpu_group(self, group_id: int, mpu_group_config: int) -> int:
        """Choose how many chips work on one model: a number of GROUP_CONFIGS."""

    @abstractmethod
    async def memx_set_ifmap_queue_size(self, model_id: int, size: int) -> int:
        """Set the slots of each input flow from the next download on; N slots hold N - 1 frames."""

    @abstractmethod
    async def memx_set_ofmap_queue_size(self, model_id: int, size: int) -> int:
        """Set the slots of each output flow likewise."""

    @abstractmethod
    async def memx_download_model(
        self,
        model_id: int,
        file_path: bytes,
        model_idx: int,
        type: int,  # noqa: A002  (the vendor's name)
    ) -> int:
        """Bring weights, a model, or both to the context's group.

        Args:
            model_id: the context.
            file_path: the file's path, or its content where `type` has the bit FROM_BUFFER.
            model_idx: which model of the file; ignored for weights alone.
            type: bits of DownloadType.
        """

    @abstractmethod
    async def memx_set_stream_enable(self, model_id: int, wait: int) -> int:
        """Let frames move. Give `wait` 0: with 1 libmemx 2.11.2 never returns."""

    @abstractmethod
    async def memx_set_stream_disable(self, model_id: int, wait: int) -> int:
        """Let no frame move any more; with `wait` 1 return only once none moves."""

    @abstractmethod
    async def memx_get_ifmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        """Read an input flow's shape and format. On a context that is not open libmemx crashes."""

    @abstractmethod
    async def memx_get_ofmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        """Read an output flow's shape and format. On a context that is not open libmemx crashes."""

    @abstractmethod
    async def memx_stream_ifmap(self, model_id: int, flow_id: int, ifmap: Array | None, timeout: int) -> int:
        """Copy one whole frame into an input flow's queue, waiting while it is full.

        Args:
            model_id: the context.
            flow_id: the input port's number.
            ifmap: C-contiguous, at least a frame's bytes: the library takes no length. None is NULL.
            timeout: milliseconds; 0 waits for ever.
        """

    @abstractmethod
    async def memx_stream_ofmap(self, model_id: int, flow_id: int, ofmap: Array | None, timeout: int) -> int:
        """Copy an output flow's oldest frame into `ofmap`, waiting while there is none.

        Args:
            model_id: the context.
            flow_id: the output port's number.
            ofmap: C-contiguous and writable, at least a frame's bytes. None is NULL.
            timeout: milliseconds; 0 waits for ever.
        """

    @abstractmethod
    async def memx_get_total_chip_count(self, group_id: int) -> tuple[int, int]:
        """Return the status and the number of chips of a group."""

    @abstractmethod
    async def memx_operation_get_device_count(self) -> tuple[int, int]:
        """Return the status and the number of groups that were there when the library was loaded."""
