"""`.xmm` files: what is read from one that was made by hand, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from repertory.models.errors import ArtifactError
from repertory.models.npu_code import Sizes
from repertory.models.xmm import Xmm
from repertory.models.xmm_header import is_xmm
from repertory.models.xmm_tensor import NpuType, Region, XmmTensor

from .xmm_files import CODE, PARAMS, Table, built, f32, file, patched, root, shape, tensor, u32

BODY = 16 + 64


def test_all_that_a_file_tells() -> None:
    data = file()
    xmm = Xmm.read(data)
    assert is_xmm(data)
    assert (xmm.name, xmm.version, xmm.model_type) == ("net", "b581eee4c  Dec 15 2025", 3)
    assert xmm.inputs == (
        XmmTensor("image", Region.INPUT, 0, (1, 2, 2, 3), (16, 8, 3, 1), NpuType.UINT8, 16),
    )
    boxes, scores = xmm.outputs
    assert (boxes.name, boxes.dims, boxes.pitches, boxes.scale, boxes.zero_point) == (
        "boxes", (1, 10), (10, 1), 0.25, 192,
    )  # fmt: skip
    assert (scores.type, scores.offset, scores.scale, scores.zero_point) == (NpuType.FP16, 16, 1.0, 0)
    (program,) = xmm.programs
    assert (program.name, program.offset, program.size, program.total) == ("main", 16, 32, 128)
    assert bytes(xmm.code(program)) == CODE
    assert bytes(xmm.parameters()) == PARAMS[:20]
    (node,) = xmm.nodes
    assert (node.name, node.device, node.inputs, node.outputs) == (
        "tvmgen_default_fused_xm_conv2d", 1, (0, 1, 2), (7,),
    )  # fmt: skip


def test_sizes_of_the_regions() -> None:
    xmm = Xmm.read(file())
    assert xmm.sizes == Sizes(params=20, work=48, inputs=16, outputs=22)
    assert (xmm.weightsize, xmm.worksize) == (20, 48)
    assert xmm.total == 32 + 48 + 16 + 32 == xmm.programs[0].total


def test_unknown_fields_of_real_files_are_left_alone() -> None:
    xmm = Xmm.read(file())
    assert (xmm.reuse, xmm.private_data, xmm.twin, xmm.is_twin) == (0, None, None, False)


def test_a_model_of_another_type_is_read() -> None:
    info = Table({0: "net", 2: u32(2)})
    assert Xmm.read(file(built(root(info=info)))).model_type == 2


def test_a_program_may_tell_another_total() -> None:
    (program,) = root()[6]
    assert Xmm.read(file(built(root(programs=[Table(program | {4: u32(4096)})])))).total == 128


IMAGE = shape([1, 2, 2, 3], [16, 8, 3, 1], 1)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"image": tensor("x", shape([4], [1], 10), size=4)}, "'x': element type 10 is not known"),
    "kind": ({"image": tensor("x", IMAGE, size=16, kind=4)}, "'x': kind 4 is not known"),
    "nine axes": ({"image": tensor("x", shape([1] * 9, [1] * 9), size=1)}, "more than 8 axes"),
    "ndims": ({"image": tensor("x", shape([1] * 9, [1] * 9, 1, 9), size=1)}, "more than 8 axes"),
    "few extents": ({"image": tensor("x", shape([1, 2], [2, 1], 1, 3), size=2)}, "3 axes, but 2 extents"),
    "few pitches": ({"image": tensor("x", shape([1, 2], [2], 1), size=2)}, "2 extents and 1 pitches"),
    "no extents": ({"image": tensor("x", shape([], []), size=2)}, "empty"),
    "no extent": ({"image": tensor("x", shape([1, 0], [1, 1]), size=2)}, "empty"),
    "no size": ({"image": tensor("x", shape([1], [1]), size=0)}, "empty"),
    "beyond its size": ({"image": tensor("x", IMAGE, size=13)}, "does not lie in 13 bytes with pitches of"),
    "overlap": ({"image": tensor("x", shape([2, 3], [2, 1]), size=6)}, "does not lie in 6 bytes"),
    "narrow": ({"image": tensor("x", shape([3], [1], 6), size=12)}, "does not lie in 12 bytes"),
    "scale 0": ({"image": tensor("x", IMAGE, size=16, scale=0.0)}, "has a scale of 0.0"),
    "scale NaN": ({"image": tensor("x", IMAGE, size=16, scale=float("nan"))}, "has a scale of nan"),
    "32 bits": ({"image": tensor("x", IMAGE, size=16, offset=0xFFFFFFF8)}, "16 bytes at 4294967288"),
    "no shape": ({"image": Table({6: u32(4)})}, "has no shape"),
    "no inputs": ({"inputs": None}, r"names \[\] as its inputs"),
    "one number": ({"tensors": [tensor("x", IMAGE, size=16)] * 2 + root()[3][1:]}, "inputs have the same"),
    "input twice": ({"inputs": [0, 0]}, r"names \[0, 0\] as its inputs"),
    "output as input": ({"inputs": [7]}, r"names \[7\] as its inputs"),
    "a list": ({"inputs": [0] * 1025}, "a list of 1025 numbers; 1024 are possible"),
    "a crowd": ({"nodes": [Table({})] * 8193}, "8193 tables; 8192 are possible"),
    "no programs": ({"programs": []}, "0 programs, 1 to 4"),
    "five programs": ({"programs": [Table({1: u32(1)})] * 5}, "5 programs, 1 to 4"),
    "no code": ({"programs": [Table({0: "p"})]}, "program 'p' has no code"),
    "code in the tail": ({"programs": [Table({0: "p", 1: u32(80), 2: u32(16)})]}, "lie outside the code"),
    "code in the header": ({"programs": [Table({0: "p", 1: u32(4), 2: u32(8)})]}, "lie outside the code"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused(what: str) -> None:
    changes, message = WRONG[what]
    image = changes.get("image")
    if image is not None:
        changes = {"tensors": [image, *root()[3][1:]]}
    with pytest.raises(ArtifactError, match=message):
        Xmm.read(file(built(root(**changes))))


def test_floats_have_no_scale_that_could_be_wrong() -> None:
    image = tensor("x", shape([2], [2], 4), size=4, scale=float("nan"), zero_point=5)
    (read,) = Xmm.read(file(built(root(tensors=[image, *root()[3][1:]])))).inputs
    assert (read.scale, read.zero_point) == (1.0, 0)


@pytest.mark.parametrize(("at", "message"), [(20, "program 'main'"), (48, "'weights'"), (64, "'bias'")])
def test_each_checksum_is_held_against_its_bytes(at: int, message: str) -> None:
    data = file()
    with pytest.raises(ArtifactError, match=f"{message}: its checksum is") as caught:
        Xmm.read(patched(data, at, bytes([data[at] ^ 1])))
    assert caught.value.offset == (16 if at < 48 else at)


def test_constants_lie_in_one_stretch() -> None:
    image, weights, bias, *others = root()[3]
    bias[7] = u32(60)
    with pytest.raises(ArtifactError, match="no stretch of 20 bytes"):
        Xmm.read(file(built(root(tensors=[image, weights, bias, *others]))))


@pytest.mark.parametrize(
    ("at", "part", "message"),
    [
        (0, b"X", "does not begin with ZZZZ"),
        (4, b"\0\0\0\0", "the header's checksum"),
        (8, struct.pack("<I", BODY + 4), "the header's checksum"),
    ],
)
def test_headers_that_are_refused(at: int, part: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        Xmm.read(patched(file(), at, part))


@pytest.mark.parametrize("change", [-1, 1])
def test_the_size_is_what_the_header_tells(change: int) -> None:
    data = file()
    with pytest.raises(ArtifactError, match="the header tells"):
        Xmm.read(data[:change] if change < 0 else data + b"\0")
    for end in (0, 3, 15):
        with pytest.raises(ArtifactError):
            Xmm.read(data[:end])


def test_a_tensor_without_name_and_number() -> None:
    image = Table({3: Table({0: [1], 1: [1]}), 4: f32(0.5), 6: u32(1)})
    (read,) = Xmm.read(file(built(root(tensors=[image, *root()[3][1:]])))).inputs
    assert read == XmmTensor("", Region.INPUT, 0, (1,), (1,), NpuType.INT8, 1, 0.5)
