"""Models for simulated NPUs: made from graphs, put in place of compiled ones, and prepared to be loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from onnx import TensorProto

from repertory.models.errors import ArtifactError, ConfigError, UnknownModel
from repertory.models.npu_code import MARK
from repertory.models.pack_xm_npu import Format, attach_twin_xm_npu, pack_xm_npu
from repertory.models.program import Artifact, Program
from repertory.models.xmm import Xmm
from repertory.models.xmm_tensor import NpuType
from repertory.models.xmm_writer import redraft, write_xmm
from repertory.transports.xm_npu.program import loadable, prepare_xmm

from .graphs import model, node, tensor
from .xmm_files import Table, built, file, root, u32

U8 = Format(NpuType.UINT8, 0.5, 3)
BUDGET = 96 << 20


@cache
def graph(shape: tuple[int | str, ...] = ("N", 2, 2, 3)) -> bytes:
    """`image` to `boxes` [N, 10] and `scores` [N, 3], as the file has them that is made by hand."""
    numbers = {"zero": 0, "one": 1, "three": 3, "ten": 10}
    nodes = [node("Constant", [], [name], value_ints=[number]) for name, number in numbers.items()]
    nodes += [
        node("Flatten", ["image"], ["flat"]),
        node("Slice", ["flat", "zero", "ten", "one"], ["boxes"]),
        node("Slice", ["flat", "zero", "three", "one"], ["scores"]),
    ]
    return model(nodes, [tensor("image", shape)], [tensor("boxes", ["N", 10]), tensor("scores", ["N", 3])])


def packed(**options: Any) -> bytes:
    return pack_xm_npu("net", graph(), **options)


def test_what_was_packed_is_what_is_read() -> None:
    formats = {"image": U8, "scores": Format(NpuType.FP16)}
    data = packed(formats=formats, work=100, private_data=b"labels", latency=0.001, row_alignment=16)
    xmm = Xmm.read(data)
    assert (xmm.name, xmm.version, xmm.model_type, xmm.is_twin) == ("net", "repertory-pack 1", 3, True)
    assert (xmm.private_data, xmm.reuse, xmm.sizes.work) == (b"labels", 0, 100)
    (image,), (boxes, scores) = xmm.inputs, xmm.outputs
    assert (image.type, image.scale, image.zero_point) == (NpuType.UINT8, 0.5, 3)
    assert (image.dims, image.pitches, image.size) == ((1, 2, 2, 3), (32, 16, 3, 1), 32)
    assert (boxes.type, boxes.size, boxes.offset) == (NpuType.FP32, 48, 0)
    assert (scores.type, scores.size, scores.offset) == (NpuType.FP16, 16, 48)
    assert bytes(xmm.code(xmm.programs[0])[: len(MARK)]) == MARK
    assert bytes(xmm.parameters()) == graph()
    assert xmm.twin is not None
    assert xmm.twin.cycles == 450_000
    assert xmm.programs[0].total == xmm.total


def test_the_same_arguments_make_the_same_bytes() -> None:
    assert packed(format=U8) == packed(format=U8) != packed()


@pytest.mark.parametrize("options", [{}, {"private_data": b"x", "work": 5, "reuse": 2, "format": U8}])
def test_write_read_write(options: dict[str, Any]) -> None:
    data = packed(**options)
    assert write_xmm(redraft(Xmm.read(data))) == data


def test_pitches_that_are_told() -> None:
    pitches = {"image": (64, 24, 4, 1)}
    (image,) = Xmm.read(packed(formats={"image": U8}, pitches=pitches)).inputs
    assert (image.pitches, image.size) == ((64, 24, 4, 1), 64)
    with pytest.raises(ArtifactError, match="does not lie in"):
        packed(formats={"image": U8}, pitches={"image": (64, 24, 2, 1)})


@pytest.mark.parametrize(
    ("reuse", "worksize"), [(0, 100), (1, 48), (2, 52), (3, 52)], ids=["work", "inputs", "outputs", "both"]
)
def test_worksize_counts_what_lies_in_the_workspace(reuse: int, worksize: int) -> None:
    work = 100 if reuse == 0 else 10
    assert Xmm.read(packed(work=work, reuse=reuse)).worksize == worksize


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formats": {"x": U8}}, "no tensor is called 'x'; there are image, boxes, scores"),
        ({"pitches": {"x": (1,)}}, "no tensor is called 'x'"),
        ({"pitches": {"image": (1,)}}, "its pitches cannot be"),
        ({"row_alignment": 0}, "1 to 4096 are possible"),
        ({"reuse": 4}, "memory reuse of type 4"),
        ({"work": 1 << 32}, "bytes of workspace"),
        ({"private_data": b""}, "the private data is empty"),
        ({"latency": float("inf")}, "a latency of inf s"),
        ({"shapes": {"image": (1, 2, 2, 4)}}, "which .* is not"),
    ],
)
def test_options_that_contradict(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        packed(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NpuType.FP16, 0.5), "FP16 is not quantised"),
        ((NpuType.UINT8, 0.0), "a scale of 0"),
        ((NpuType.UINT8, float("nan")), "a scale of nan"),
        ((NpuType.UINT8, 1e-60), "a scale of 0"),
        ((NpuType.UINT8, 1.0, 1 << 31), "a zero point of"),
    ],
)
def test_formats_that_do_not_exist(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Format(*arguments)


def test_tensors_that_an_npu_has_not() -> None:
    cast = node("Cast", ["x"], ["y"], to=int(TensorProto.INT64))
    data = model([cast], [tensor("x", [1, 4])], [tensor("y", [1, 4], int(TensorProto.INT64))])
    with pytest.raises(ArtifactError, match=r"'y' is int64\[1, 4\], which an NPU's tensor cannot be"):
        pack_xm_npu("net", data)
    assert Xmm.read(pack_xm_npu("net", data, formats={"y": Format(NpuType.INT32)})).outputs[0].size == 16
    with pytest.raises(ArtifactError, match="is no name"):
        pack_xm_npu("", graph())


def test_a_twin_for_a_compiled_model_has_its_tensors() -> None:
    before = Xmm.read(file())
    after = Xmm.read(attach_twin_xm_npu(file(), graph(), latency=0.002, clock_hz=1e6))
    assert after.twin is not None
    assert after.twin.cycles == 2000
    assert (after.name, after.sizes.work) == ("net", before.sizes.work)
    sides = ((before.inputs, after.inputs), (before.outputs, after.outputs))
    for old, new in sides:
        assert [(t.name, t.offset, t.dims, t.pitches, t.type, t.scale) for t in old] == [
            (t.name, t.offset, t.dims, t.pitches, t.type, t.scale) for t in new
        ]


def test_a_packed_model_with_its_own_graph_again_is_itself() -> None:
    data = packed(work=5, reuse=3, private_data=b"x", latency=1.0)
    assert attach_twin_xm_npu(data, graph()) == data


@pytest.mark.parametrize("shape", [(1, 2, 3, 2), ("N", 12)])
def test_a_twin_of_other_extents(shape: tuple[int | str, ...]) -> None:
    with pytest.raises(ArtifactError, match=r"'image' is .* the model's 'image' is"):
        attach_twin_xm_npu(file(), graph(shape))


def test_code_is_held_against_the_tail_and_the_graph() -> None:
    draft = redraft(Xmm.read(packed()))
    image, *others = draft.tensors
    ((_, code),) = draft.codes
    wrong = {
        "the graph of its twin is not": replace(draft, params=draft.params[:-1] + b"X"),
        "made for other tensors": replace(
            draft, tensors=(replace(image, scale=2.0, type=NpuType.INT32), *others)
        ),
        "cannot be read": replace(draft, codes=(("main", code.replace(b"cycles", b"cyclez")),)),
        "memory reuse of type 4": replace(draft, reuse=4),
    }
    for message, each in wrong.items():
        with pytest.raises(ArtifactError, match=message):
            Xmm.read(write_xmm(each))


def prepared(data: bytes, *, name: str = "file.xmm", twin: bytes | None = None, **options: Any) -> Program:
    native = options.pop("native_outputs", False)
    artifact = Artifact(name, data, options.pop("network", None), twin, native_outputs=native)
    told: dict[str, Any] = {"simulated": True, "via": "cl", "budget": BUDGET}
    return prepare_xmm(artifact, **(told | options))


def test_what_a_device_is_told() -> None:
    program = prepared(packed(format=U8, work=5000))
    image = loadable(program)
    (network,) = program.networks
    assert (program.name, network.name, image.batch, image.native, image.work) == (
        "net",
        "net",
        1,
        False,
        5000,
    )
    assert [str(spec) for spec in (*network.inputs, *network.outputs)] == [
        "uint8[1, 2, 2, 3]",
        "float32[1, 10]",
        "float32[1, 3]",
    ]
    assert (program.footprint, program.scratch) == (4096 * (1 + 1 + 2 * 2), 8192)
    offset, size = image.params
    assert image.data[offset : offset + size] == graph()


def test_a_batch_multiplies_the_first_extent_and_the_buffers() -> None:
    program = prepared(packed(pitches={"image": (4096, 2048, 12, 4)}), batch=3)
    assert program.networks[0].inputs[0].shape == (3, 2, 2, 3)
    assert program.footprint == 4096 * (1 + 1 + 2 * (3 + 1))


def test_native_outputs_are_what_lies_in_memory() -> None:
    plain, native = (prepared(packed(format=U8), native_outputs=each) for each in (False, True))
    assert str(native.networks[0].outputs[0]) == "uint8[1, 10]"
    assert native.networks[0].outputs[0].quantisation is not None
    assert plain.key != native.key


@pytest.mark.parametrize(("reuse", "pages"), [(0, 1 + 1 + 4), (1, 1 + 1 + 1 + 1), (3, 1 + 1 + 1)])
def test_a_workspace_with_tensors_in_it_is_not_shared(reuse: int, pages: int) -> None:
    program = prepared(packed(work=100, reuse=reuse))
    assert (program.footprint, program.scratch) == (4096 * pages, 0 if reuse else 4096)


def test_each_of_several_programs_has_pages_of_its_own() -> None:
    """So does their workspace: nobody says that another graph's run is not in between."""
    (program,) = root()[6]
    one, two = (
        prepare_xmm(
            Artifact("net.xmm", file(built(root(programs=[program] * count)))),
            simulated=False,
            via="cl",
            budget=BUDGET,
        )
        for count in (1, 2)
    )
    assert one.scratch == 4096
    assert (two.footprint, two.scratch) == (one.footprint + 4096 + one.scratch, 0)


def test_by_the_nodes_all_lies_in_one_window() -> None:
    program = prepared(packed(work=5000), via="ioctl")
    assert (program.footprint, program.scratch) == (8192, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "a batch of 0; 1 to 32"),
        ({"batch": 33}, "a batch of 33; 1 to 32"),
        ({"batch": 2, "via": "ioctl"}, "only the library knows dynamic batches"),
        ({"simulated": False}, "simulation twin"),
        ({"budget": 4096 * 7 - 1}, "it takes 24576 bytes and a workspace of 4096; .* has 28671"),
    ],
)
def test_models_that_are_not_prepared(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=f"^file.xmm: .*{message}"):
        prepared(packed(work=1), **options)


def test_files_that_are_not_prepared() -> None:
    with pytest.raises(ArtifactError, match=r"carries no twin: a simulator needs twin="):
        prepared(file())
    with pytest.raises(ArtifactError, match=r"model type 2; this NPU runs type 3 .*-68"):
        prepared(file(built(root(info=Table({0: "net", 2: u32(2)})))), simulated=False)
    with pytest.raises(ArtifactError, match="memory reuse of type 1: only the library"):
        prepared(packed(reuse=1), via="ioctl")
    with pytest.raises(UnknownModel, match="holds 'net', not 'other'"):
        prepared(packed(), network="other")
    assert prepared(file(), simulated=False).name == "net"
    assert prepared(packed(), twin=graph()).key == prepared(packed()).key


def test_what_has_no_name_gets_one() -> None:
    image, *others = root()[3]
    nameless = Table({number: value for number, value in image.items() if number != 11})
    data = file(built(root(info=Table({2: u32(3)}), tensors=[nameless, *others])))
    program = prepared(data, name="gnn0.bin", simulated=False)
    assert (program.name, program.networks[0].inputs[0].name) == ("gnn0", "input_0")


def test_a_model_for_an_npu_is_no_twin() -> None:
    with pytest.raises(ArtifactError, match=r"this is a model for an NPU \(\.xmm\)"):
        Artifact.read(file(), twin=packed())
