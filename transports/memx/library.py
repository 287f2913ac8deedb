"""The lowest interface of the MX3 family: one method for each libmemx function that has a use here.

Everything above sees libmemx through `Libmemx` and cannot tell the vendor's library (`binding.py`) from
the simulated one (`simulator/`). Names, arguments and their order are the vendor's.

Left out: `memx_download_firmware` (flashing is not the runtime's business), `memx_self_test` and
`memx_devio_control` (the vendor publishes neither opcodes nor buffer sizes), and
`memx_download_model_from_cahce`, which wants a private structure of the vendor's C++ runtime.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias, final

from repertory.models.errors import ConfigError
from repertory.models.formats import Bytes
from repertory.models.spec import Array

__all__ = ["REQUIRED", "FlowSize", "FmapBuffer", "Libmemx"]

FlowSize: TypeAlias = tuple[int, int, int, int, int, int]
"""Status, height, width, z, channel number, format; zeros after a status that is not OK."""

REQUIRED: frozenset[str] = frozenset(
    {
        "memx_trylock",
        "memx_unlock",
        "memx_open",
        "memx_close",
        "memx_config_mpu_group",
        "memx_set_ifmap_queue_size",
        "memx_set_ofmap_queue_size",
        "memx_download_model",
        "memx_set_stream_enable",
        "memx_set_stream_disable",
        "memx_get_ifmap_size",
        "memx_get_ofmap_size",
        "memx_stream_ifmap",
        "memx_stream_ofmap",
        "memx_get_total_chip_count",
        "memx_operation_get_device_count",
    }
)
"""Functions without which no model runs: all libraries from 2.2 on export them. All others are optional."""


@final
class FmapBuffer(NamedTuple):
    """A frame buffer that belongs to the library, on loan from a dequeue until its enqueue.

    Attributes:
        idx: its place in the flow's ring.
        data: its memory, writable; valid while it is on loan.
    """

    idx: int
    data: Bytes


class Libmemx(ABC):
    """libmemx, async-coloured: the real binding blocks and never suspends, the simulator may do either.

    Every method returns the status as an unsigned 32-bit number, followed by what the C function writes
    through its pointers. No status is turned into an exception here. Calls are made from driver loops, and
    may be made from several at once. Nothing but a timeout bounds a call, and only the stream calls and
    their zero-copy siblings have one: milliseconds, and 0 waits for ever.

    A method whose function is not among `exports` raises ConfigError, but for `REQUIRED`.

    Attributes:
        simulated: whether no hardware stands behind it.
        version: the library's own version, such as `2.11.2`, or `unknown`.
        exports: names of the optional functions that may be called. `memx_reconfigure` is one: the library
            lost it in version 2.10; the zero-copy calls are others, which came with it.
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

    # -- locks -------------------------------------------------------------------------------------

    @abstractmethod
    async def memx_lock(self, group_id: int) -> int:
        """Take the advisory lock of a group, waiting without a bound; twice in one thread is a deadlock."""

    @abstractmethod
    async def memx_trylock(self, group_id: int) -> int:
        """Take the advisory lock of a group, or return GROUP_IN_USE at once."""

    @abstractmethod
    async def memx_unlock(self, group_id: int) -> int:
        """Release the lock; OK too where nobody holds it."""

    # -- contexts ----------------------------------------------------------------------------------

    @abstractmethod
    async def memx_open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        """Open a context on a group, or count one more use of it. `chip_gen` is ignored."""

    @abstractmethod
    async def memx_close(self, model_id: int) -> int:
        """Count one use less; the last one frees the context and its queues."""

    @abstractmethod
    async def memx_reconfigure(self, model_id: int, group_id: int) -> int:
        """Bind a context to a group, with nothing loaded afterwards; no transfer may be in flight."""

    @abstractmethod
    async def memx_set_ifmap_queue_size(self, model_id: int, size: int) -> int:
        """Set the slots of each input flow from the next download on; N slots hold N - 1 frames."""

    @abstractmethod
    async def memx_set_ofmap_queue_size(self, model_id: int, size: int) -> int:
        """Set the slots of each output flow likewise."""

    @abstractmethod
    async def memx_set_abort_read(self, model_id: int) -> int:
        """Abort reads from the device, for a Ctrl-C; a close must follow. Wakes no stream call."""

    @abstractmethod
    async def memx_set_powerstate(self, model_id: int, state: int) -> int:
        """Set a `PowerState` from 0 to 3."""

    @abstractmethod
    async def memx_get_chip_gen(self, model_id: int) -> tuple[int, int]:
        """Return the status and the chips' generation, 31 for an MX3."""

    @abstractmethod
    async def memx_operation(self, model_id: int, cmd_id: int, data: Bytes | None, size: int) -> int:
        """Carry out an `Operation`, which reads or writes `data` (None is NULL) of `size` bytes."""

    # -- downloads ---------------------------------------------------------------------------------

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
    async def memx_download_model_wtmem(self, model_id: int, file_path: bytes) -> int:
        """Bring the weights of a file alone."""

    @abstractmethod
    async def memx_download_model_config(self, model_id: int, file_path: bytes, model_idx: int) -> int:
        """Bring a model of a file without its weights."""

    # -- streams -----------------------------------------------------------------------------------

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
    async def memx_get_ifmap_range_convert(
        self, model_id: int, flow_id: int
    ) -> tuple[int, int, float, float]:
        """Return the status, whether inputs are converted, their shift and scale; crashes as the sizes do."""

    @abstractmethod
    async def memx_get_ofmap_hpoc(self, model_id: int, flow_id: int) -> tuple[int, tuple[int, ...]]:
        """Return the status and the channels of an output to be dropped; crashes as the sizes do."""

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
    async def memx_dequeue_ifmap_buf(
        self, model_id: int, flow_id: int, timeout: int
    ) -> tuple[int, FmapBuffer | None]:
        """Return the status and an empty buffer of an input flow, to be filled."""

    @abstractmethod
    async def memx_enqueue_ifmap_buf(
        self, model_id: int, flow_id: int, fmap_buf: FmapBuffer, timeout: int
    ) -> int:
        """Send a filled buffer, the very one of the dequeue."""

    @abstractmethod
    async def memx_dequeue_ofmap_buf(
        self, model_id: int, flow_id: int, timeout: int
    ) -> tuple[int, FmapBuffer | None]:
        """Return the status and the buffer with an output flow's oldest frame."""

    @abstractmethod
    async def memx_enqueue_ofmap_buf(
        self, model_id: int, flow_id: int, fmap_buf: FmapBuffer, timeout: int
    ) -> int:
        """Give a buffer that was read back, the very one of the dequeue."""

    # -- groups ------------------------------------------------------------------------------------

    @abstractmethod
    async def memx_config_mpu_group(self, group_id: int, mpu_group_config: int) -> int:
        """Choose how many chips work on one model: a number of GROUP_CONFIGS."""

    @abstractmethod
    async def memx_get_total_chip_count(self, group_id: int) -> tuple[int, int]:
        """Return the status and the number of chips of a group."""

    @abstractmethod
    async def memx_operation_get_device_count(self) -> tuple[int, int]:
        """Return the status and the number of groups that were there when the library was loaded."""

    @abstractmethod
    async def memx_operation_get_mpu_group_count(self, group_id: int) -> tuple[int, int]:
        """Return the status and into how many parts, each with a model of its own, a group is configured."""

    @abstractmethod
    async def memx_get_feature(self, group_id: int, chip_id: int, opcode: int) -> tuple[int, bytes]:
        """Return the status and the `feature_bytes` of a `GetFeature`; little-endian numbers."""

    @abstractmethod
    async def memx_set_feature(self, group_id: int, chip_id: int, opcode: int, parameter: int) -> int:
        """Set a `SetFeature` to a number of 16 bits; the firmware checks its range."""

    @abstractmethod
    async def memx_enter_device_deep_sleep(self, group_id: int) -> int:
        """Put a group to sleep."""

    @abstractmethod
    async def memx_exit_device_deep_sleep(self, group_id: int) -> int:
        """Wake a group up."""
