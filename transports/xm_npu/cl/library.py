"""The lowest interface of the vendor's library: one method for each function that has a use here.

Everything above sees the library through `XmediaCl` and cannot tell the vendor's (`binding.py`) from the
simulated one (`../simulator/`). Names, arguments and their order are those of the vendor's headers, of
revision C of the CL interface; a pointer that may be NULL may be None, and a handle that is NULL is 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias, final

from repertory.models.errors import ConfigError

__all__ = [
    "OPTIONAL",
    "DeviceType",
    "EventStatus",
    "InOut",
    "MemInfo",
    "Notify",
    "ReuseType",
    "Tensor",
    "TensorBatch",
    "XmediaCl",
]

Notify: TypeAlias = Callable[[int, int], None]
"""Called with an event and its status, in a thread of the library, or at once in the caller's while the event
is locked: it must return at once and call nothing of the library."""

OPTIONAL: Final = frozenset(
    {
        "xmedia_cl_graph_submit",
        "xmedia_cl_set_event_callback",
        "xmedia_cl_wait_for_events",
        "xmedia_cl_graph_set_dynamic_batch_size",
        "xmedia_cl_graph_get_memory_reuse_type",
        "xmedia_cl_graph_query_model_info_from_file",
        "xmedia_cl_graph_query_model_info_from_buff",
        "xmedia_cl_graph_get_private_data",
        "xmedia_cl_graph_get_private_data_from_file",
        "xmedia_cl_graph_get_private_data_from_buff",
        "xmedia_cl_graph_set_schedule_prio",
        "xmedia_cl_graph_set_compress_config",
        "xmedia_cl_graph_communicate",
        "xmedia_cl_graph_decommunicate",
        "xmedia_cl_set_workspace_addr",
        "xmedia_cl_get_workspace_addr",
        "xmedia_cl_set_profiling",
        "xmedia_mmz_virt_to_phy",
        "xmedia_mmz_is_cached",
        "xmedia_mmz_init",
        "xmedia_mmz_exit",
    }
)
"""Functions without which models run all the same."""


@final
class DeviceType(IntEnum):
    """Of `xmedia_cl_get_device_ids`."""

    CPU = 0
    NPU = 1
    ALL = 2


@final
class EventStatus(IntEnum):
    """Of `xmedia_cl_query_event_status`; from COMPLETED on it never changes."""

    QUEUED = 0
    SUBMITTED = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4


@final
class ReuseType(IntEnum):
    """What lies inside the workspace."""

    WORKSPACE = 0
    WORKSPACE_INPUT = 1
    WORKSPACE_OUTPUT = 2
    WORKSPACE_INPUT_OUTPUT = 3


@final
@dataclass(slots=True)
class Tensor:
    """`xmedia_cl_tensor`.

    Attributes:
        tensor_id: its number.
        addr: of its data, as `xmedia_mmz_map` returned it; the caller sets it. 0 is NULL.
        ndims: how many entries of `dims` and `pch` are valid.
        dims: extents, eight of them.
        pch: bytes between neighbours along each axis, eight of them.
        type: of an element, by number: `models.xmm_tensor.NpuType`.
        scale: real = (stored - zp) * scale.
        zp: likewise.
        size: bytes.
        name: or None.
    """

    tensor_id: int = 0
    addr: int = 0
    ndims: int = 0
    dims: tuple[int, ...] = (0,) * 8
    pch: tuple[int, ...] = (0,) * 8
    type: int = 0
    scale: float = 0.0
    zp: int = 0
    size: int = 0
    name: bytes | None = None


@final
@dataclass(slots=True)
class TensorBatch:
    """`xmedia_cl_tensor_batch`: the batches that a tensor may have, eight of them at most."""

    batch_count: int = 0
    batch: tuple[int, ...] = (0,) * 8


@final
@dataclass(slots=True)
class InOut:
    """`xmedia_cl_tensor_info_inout`: the caller's, and filled by the library.

    Attributes:
        num: of tensors.
        tensor: None is a NULL pointer, here and below.
        tensor_batch: one for each tensor. Must be zeroed: garbage is read as a batch.
        current_batch: likewise.
    """

    num: int = 0
    tensor: list[Tensor] | None = None
    tensor_batch: list[TensorBatch] | None = None
    current_batch: list[int] | None = None

    def allocate(self) -> InOut:
        """Make the three arrays for `num` tensors, all zeros; returns itself."""
        self.tensor = [Tensor() for _ in range(self.num)]
        self.tensor_batch = [TensorBatch() for _ in range(self.num)]
        self.current_batch = [0] * self.num
        return self


@final
@dataclass(frozen=True, slots=True)
class MemInfo:
    """`xmedia_cl_mem_info`, all but one in bytes."""

    worksize: int = 0
    weightsize: int = 0
    inputsize: int = 0
    outputsize: int = 0
    codesize: int = 0
    memory_reuse_type: int = 0
    private_data_size: int = 0


class XmediaCl(ABC):
    """libxmedia_common, _npu and _cl, async-coloured: the real binding blocks and never suspends.

    Every method returns the status (signed, 32 bits) as its last or only value unless told otherwise, before
    it what the C function writes through its pointers; arguments that are lists, `InOut` and the like are
    filled in place. No status is turned into an exception here. Calls are made by one driver loop, one at a
    time. A method whose function is not among `exports` raises ConfigError.

    Attributes:
        simulated: whether no hardware stands behind it.
        exports: names of those of `OPTIONAL` that may be called.
    """

    simulated: bool
    exports: frozenset[str]

    def require(self, name: str) -> None:
        """Check that an optional function may be called.

        Raises:
            ConfigError: it is not among `exports`.
        """
        if name not in self.exports:
            raise ConfigError(f"this libxmedia_cl does not export {name}")

    @abstractmethod
    def memory(self, virt: int, size: int) -> memoryview:
        """Return the bytes behind an address that `xmedia_mmz_map` returned; valid until it is unmapped."""

    # -- system ------------------------------------------------------------------------------------

    @abstractmethod
    async def xmedia_sys_init(self) -> int:
        """Open the system module; the configuration is NULL."""

    @abstractmethod
    async def xmedia_sys_exit(self) -> int:
        """Close it."""

    # -- memory ------------------------------------------------------------------------------------

    @abstractmethod
    async def xmedia_mmz_init(self) -> None:
        """Open the memory's node."""

    @abstractmethod
    async def xmedia_mmz_exit(self) -> None:
        """Close it."""

    @abstractmethod
    async def xmedia_mmz_alloc(self, mmz_name: bytes | None, buf_name: bytes | None, size: int) -> int:
        """Return the physical address of whole pages, or 0. No zone's name means the zone `anonymous`."""

    @abstractmethod
    async def xmedia_mmz_free(self, phy: int) -> int:
        """Give a block back."""

    @abstractmethod
    async def xmedia_mmz_map(self, phy: int, size: int, cached: bool) -> int:  # noqa: FBT001
        """Return the virtual address of a block, or 0."""

    @abstractmethod
    async def xmedia_mmz_unmap(self, virt: int) -> int:
        """Unmap a block; cleans and invalidates all of it where it was cached."""

    @abstractmethod
    async def xmedia_mmz_flush_cache(self, phy: int, virt: int, size: int) -> int:
        """Write back, and invalidate, whole cache lines of 64 bytes."""

    @abstractmethod
    async def xmedia_mmz_virt_to_phy(self, virt: int) -> tuple[int, int]:
        """Return the physical address, and the status."""

    @abstractmethod
    async def xmedia_mmz_is_cached(self, virt: int) -> tuple[bool, int]:
        """Return whether a mapping is cached, and the status."""

    # -- devices and contexts ----------------------------------------------------------------------

    @abstractmethod
    async def xmedia_cl_init(self) -> int:
        """Count one use of the library."""

    @abstractmethod
    async def xmedia_cl_uninit(self) -> int:
        """Count one use less."""

    @abstractmethod
    async def xmedia_cl_get_device_ids(
        self, device_type: int, devices: list[int] | None, num_devices: int | None
    ) -> tuple[int, int]:
        """Fill `devices`, or tell how many there are; returns the number and the status."""

    @abstractmethod
    async def xmedia_cl_release_device_ids(self, devices: list[int] | None, num_devices: int) -> int:
        """Give devices back."""

    @abstractmethod
    async def xmedia_cl_create_context(self, num_devices: int, devices: list[int] | None) -> tuple[int, int]:
        """Return the process's one context, or 0; and `err_code`."""

    @abstractmethod
    async def xmedia_cl_release_context(self, context: int) -> int:
        """Count one use of the context less."""

    @abstractmethod
    async def xmedia_cl_set_workspace_addr(self, context: int, addr: int, worksize: int) -> int:
        """Note a workspace; once only."""

    @abstractmethod
    async def xmedia_cl_get_workspace_addr(self, context: int) -> tuple[int, int, int]:
        """Return its address, its size, and the status."""

    # -- models ------------------------------------------------------------------------------------

    @abstractmethod
    async def xmedia_cl_graph_querysize_from_file(self, path: bytes | None) -> tuple[int, int, int]:
        """Return worksize, weightsize and the status."""

    @abstractmethod
    async def xmedia_cl_graph_querysize_from_buff(self, buff: bytes | None) -> tuple[int, int, int]:
        """Likewise. The library trusts the sizes in the header: pass nothing unchecked."""

    @abstractmethod
    async def xmedia_cl_graph_query_model_info_from_file(
        self, path: bytes | None, info_type: int
    ) -> tuple[MemInfo, int]:
        """Return what the model needs, and the status."""

    @abstractmethod
    async def xmedia_cl_graph_query_model_info_from_buff(
        self, buff: bytes | None, info_type: int
    ) -> tuple[MemInfo, int]:
        """Likewise."""

    @abstractmethod
    async def xmedia_cl_graph_get_private_data_from_file(
        self, path: bytes | None, size: int
    ) -> tuple[bytes, int]:
        """Return the private data, of exactly `size` bytes, and the status."""

    @abstractmethod
    async def xmedia_cl_graph_get_private_data_from_buff(
        self, buff: bytes | None, size: int
    ) -> tuple[bytes, int]:
        """Likewise."""

    @abstractmethod
    async def xmedia_cl_graph_loadmodel_from_file(self, context: int, path: bytes | None) -> tuple[int, int]:
        """Load into memory of the library's own; returns the graph and the status."""

    @abstractmethod
    async def xmedia_cl_graph_loadmodel_from_buff(self, context: int, buff: bytes | None) -> tuple[int, int]:
        """Likewise."""

    @abstractmethod
    async def xmedia_cl_graph_loadmodel_from_file_withmem(  # noqa: PLR0917  (the vendor's)
        self, context: int, path: bytes | None, workspace: int, worksize: int, weight: int, weightsize: int
    ) -> tuple[int, int]:
        """Load into the caller's memory; returns the graph and the status."""

    @abstractmethod
    async def xmedia_cl_graph_loadmodel_from_buff_withmem(  # noqa: PLR0917  (the vendor's)
        self, context: int, buff: bytes | None, workspace: int, worksize: int, weight: int, weightsize: int
    ) -> tuple[int, int]:
        """Likewise."""

    @abstractmethod
    async def xmedia_cl_graph_unload(self, graph: int) -> int:
        """Free a graph; the caller's memory stays the caller's."""

    # -- graphs ------------------------------------------------------------------------------------

    @abstractmethod
    async def xmedia_cl_graph_get_input(self, graph: int, input_num: int, io: InOut | None) -> int:
        """Fill in the number of inputs, where `input_num` is 0, else all about them."""

    @abstractmethod
    async def xmedia_cl_graph_get_output(self, graph: int, output_num: int, io: InOut | None) -> int:
        """Likewise for outputs."""

    @abstractmethod
    async def xmedia_cl_graph_set_dynamic_batch_size(
        self, graph: int, io: InOut | None, index: int, batch: int
    ) -> int:
        """Note the batch of an input, 1 to 32."""

    @abstractmethod
    async def xmedia_cl_graph_set_inout(self, graph: int, input: InOut | None, output: InOut | None) -> int:  # noqa: A002
        """Bind buffers: the first tensor's address is the base, the others follow at multiples of 8."""

    @abstractmethod
    async def xmedia_cl_graph_process(self, graph: int) -> int:
        """Run a graph and wait, without a bound."""

    @abstractmethod
    async def xmedia_cl_graph_submit(self, graph: int) -> tuple[int, int]:
        """Queue a run; returns its event and the status. Waits for the graph's run before, without bound."""

    @abstractmethod
    async def xmedia_cl_graph_set_schedule_prio(self, graph: int, prio: int) -> int:
        """Set the priority, 0 to 3, 3 first."""

    @abstractmethod
    async def xmedia_cl_graph_get_memory_reuse_type(self, graph: int) -> tuple[int, int]:
        """Return a `ReuseType` and the status."""

    @abstractmethod
    async def xmedia_cl_graph_get_private_data(self, graph: int) -> tuple[bytes, int]:
        """Return the private data, and the status."""

    @abstractmethod
    async def xmedia_cl_graph_set_compress_config(
        self, graph: int, device_head_addr: int, head_size: int, break_line: int
    ) -> int:
        """Not supported by the library: always INVALID_OPERATION."""

    @abstractmethod
    async def xmedia_cl_graph_communicate(self, graph: int) -> tuple[int, int]:
        """Return the number of a model that other cores may run, and the status."""

    @abstractmethod
    async def xmedia_cl_graph_decommunicate(self, graph: int, model_id: int) -> int:
        """Take it back."""

    @abstractmethod
    async def xmedia_cl_set_profiling(self, graph: int, type: int, flag: int) -> int:  # noqa: A002
        """Set profiling; the structure of two numbers passes by value."""

    # -- events ------------------------------------------------------------------------------------

    @abstractmethod
    async def xmedia_cl_wait_for_events(self, events: list[int] | None) -> int:
        """Wait until all are final, without a bound; the driver never calls it."""

    @abstractmethod
    async def xmedia_cl_query_event_status(self, event: int) -> tuple[int, int]:
        """Return an `EventStatus` and the status; never blocks."""

    @abstractmethod
    async def xmedia_cl_set_event_callback(self, event: int, status: int, notify: Notify | None) -> int:
        """Let `notify` be called when the event gets this status, COMPLETED or FAILED; see `Notify`."""

    @abstractmethod
    async def xmedia_cl_release_event(self, event: int) -> int:
        """Count one use of an event less."""
