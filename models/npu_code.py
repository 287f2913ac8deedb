"""What stands where an NPU's code would be, in a model for simulated NPUs.

A simulated NPU reads it from its memory as a real one reads its instructions, and finds the graph that it
names among the parameters. So a model that was copied wrongly, or not flushed, does not run.
"""

from __future__ import annotations

from typing import Annotated, Final, cast, final

import msgspec

from .errors import ArtifactError
from .mxpack import Buffer
from .spec import Array
from .xmm_tensor import MAX_DIMS, NpuType, Region, XmmTensor

__all__ = ["MARK", "VERSION", "CodeTensor", "NpuCode", "Sizes", "decode_code", "encode_code", "is_twin_code"]

MARK: Final = b"repertory-npu\0\0\0"
"""How it begins: no instruction of an NPU does."""
VERSION: Final = 1
"""What this package writes, and the only version it reads."""

_LENGTH_BYTES = 4
_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


@final
class CodeTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input or output: as it lies in memory, and which tensor of the graph it is."""

    graph_name: str
    offset: _Size
    dims: Annotated[tuple[_Size, ...], msgspec.Meta(min_length=1, max_length=MAX_DIMS)]
    pitches: Annotated[tuple[_Size, ...], msgspec.Meta(min_length=1, max_length=MAX_DIMS)]
    type: Annotated[int, msgspec.Meta(ge=0, le=int(max(NpuType)))]
    size: _Size
    scale: float = 1.0
    zero_point: int = 0

    def tensor(self, region: Region) -> XmmTensor:
        """Return it as what it is."""
        return XmmTensor(
            self.graph_name,
            region,
            self.offset,
            self.dims,
            self.pitches,
            NpuType(self.type),
            self.size,
            self.scale,
            self.zero_point,
        )


@final
class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of the regions of one program, none of them rounded."""

    params: _Size
    work: _Size
    inputs: _Size
    outputs: _Size


@final
class NpuCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program of a simulated NPU.

    Attributes:
        version: `VERSION`.
        name: of the network.
        graph: offset and size, in the region of parameters, of a whole ONNX model.
        digest: blake2b of that model, 16 bytes.
        sizes: of the regions.
        inputs: the network's inputs.
        outputs: likewise.
        cycles: of the NPU's clock that a run takes, or None if nobody told.
    """

    version: int
    name: str
    graph: tuple[_Size, _Size]
    digest: bytes
    sizes: Sizes
    inputs: tuple[CodeTensor, ...]
    outputs: tuple[CodeTensor, ...]
    cycles: Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)] | None = None


def is_twin_code(data: Buffer | Array) -> bool:
    """Whether these bytes begin as this package's code does."""
    return bytes(memoryview(cast("Buffer", data))[: len(MARK)]) == MARK


def encode_code(code: NpuCode) -> bytes:
    """Write code as `decode_code` reads it: a multiple of 16 bytes."""
    body = msgspec.msgpack.encode(code)
    data = MARK + len(body).to_bytes(_LENGTH_BYTES, "little") + body
    return data + bytes(-len(data) % 16)


def decode_code(data: Buffer) -> NpuCode:
    """Read code; `data` may be longer.

    Raises:
        ArtifactError: it is none, is of another version, or is malformed.
    """
    if not is_twin_code(data):
        raise ArtifactError("no code of a simulated NPU: its mark is missing")
    view = memoryview(data)[len(MARK) :]
    size = int.from_bytes(view[:_LENGTH_BYTES], "little")
    body = view[_LENGTH_BYTES : _LENGTH_BYTES + size]
    if len(body) != size:
        raise ArtifactError(f"code of a simulated NPU: {size} bytes are announced, {len(body)} are there")
    try:
        code = msgspec.msgpack.decode(body, type=NpuCode)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ArtifactError(f"code of a simulated NPU cannot be read: {error}") from error
    if code.version != VERSION:
        raise ArtifactError(f"code of a simulated NPU has version {code.version}, {VERSION} is known")
    return code
