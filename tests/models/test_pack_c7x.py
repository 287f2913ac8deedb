from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from repertory.models.dynmod import Dynmod
from repertory.models.dynmod_io import DynmodIo
from repertory.models.errors import ArtifactError, ConfigError
from repertory.models.onnx_model import OnnxExecutor
from repertory.models.pack_c7x import attach_twin_c7x, pack_c7x

from .graphs import model, node, tensor
from .modules import SIDECAR, linked, linked_v2, module

FLOAT = int(TensorProto.FLOAT)
BOOL = int(TensorProto.BOOL)
STRING = int(TensorProto.STRING)
BFLOAT16 = int(TensorProto.BFLOAT16)


def negate(shape: Any, output: Any = None, *, kind: int = FLOAT, names: str = "xy") -> bytes:
    x, y = names[0], names[1]
    return model([node("Neg", [x], [y])], [tensor(x, shape, kind)], [tensor(y, output or shape, kind)])


def packed(data: bytes, **options: Any) -> Dynmod:
    return Dynmod.read(pack_c7x("net", data, **options))


def tensors(found: Dynmod) -> list[str]:
    assert found.network is not None
    return [str(spec) for spec in (*found.network.inputs, *found.network.outputs)]


def test_a_real_model_is_packed(mtcnn: dict[str, bytes], tmp_path: Path) -> None:
    data = pack_c7x("rnet", mtcnn["rnet"], latency=0.01)
    assert data == pack_c7x("rnet", mtcnn["rnet"], latency=0.01)
    found = Dynmod.read(data)
    assert (found.is_twin, found.soname, found.machine) == (True, "lib0.out", 145)
    assert found.network is not None
    assert tensors(found) == ["float32[1, 24, 24, 3]", "float32[1, 4]", "float32[1, 2]"]
    assert found.io == DynmodIo(inputs=1, outputs=2, input_bytes=6912, output_bytes=128, exact=True)
    assert found.weights == 64
    assert found.imports
    assert found.twin is not None
    (twin,) = found.twin.networks
    assert (twin.name, twin.onnx, twin.latency) == ("rnet", mtcnn["rnet"], 0.01)
    assert (twin.inputs, twin.outputs) == (["input_2"], ["dense_2", "softmax_1"])
    (tmp_path / "lib0.out").write_bytes(data)
    done = subprocess.run(["readelf", "-aW", tmp_path / "lib0.out"], capture_output=True, check=True)
    assert done.stderr == b""
    assert b"cg_main_dsp" in done.stdout


def test_an_open_extent_needs_a_shape_and_an_open_batch_none(mtcnn: dict[str, bytes]) -> None:
    with pytest.raises(ArtifactError, match=r"net: input 'input_1' .*--shape input_1=1,<M1>,<M2>,3"):
        packed(mtcnn["pnet"])
    found = packed(mtcnn["pnet"], shapes={"input_1": (2, 48, 64, 3)})
    assert tensors(found) == ["float32[2, 48, 64, 3]", "float32[2, 19, 27, 4]", "float32[2, 19, 27, 2]"]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (negate((4, 8)), ["float32[4, 8]"] * 2),
        (negate(("N", 8)), ["float32[1, 8]"] * 2),
        (negate(()), ["float32[]"] * 2),
        (negate((1, 2, 3, 1, 2, 3)), ["float32[1, 2, 3, 1, 2, 3]"] * 2),
        (negate((3,), kind=int(TensorProto.INT64)), ["int64[3]"] * 2),
        (negate((3,), kind=int(TensorProto.FLOAT16)), ["float16[3]"] * 2),
    ],
)
def test_tensors_go_as_the_graph_has_them(data: bytes, wanted: list[str]) -> None:
    assert tensors(packed(data)) == wanted


def test_outputs_that_inference_cannot_tell_are_seen_in_a_run() -> None:
    data = model(
        [
            node("Constant", [], ["target"], value_floats=[4.0, 9.0]),
            node("Sqrt", ["target"], ["root"]),
            node("Cast", ["root"], ["shape"], to=int(TensorProto.INT64)),
            node("Reshape", ["x", "shape"], ["y"]),
        ],
        [tensor("x", [6])],
        [tensor("y", [None, None])],
    )
    assert tensors(packed(data)) == ["float32[6]", "float32[2, 3]"]


def identity(kind: int) -> bytes:
    return model([node("Identity", ["x"], ["y"])], [tensor("x", [2], kind)], [tensor("y", [2], kind)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"junk", "does not load"),
        (identity(BOOL), "'x' is bool, which the wire to the DSP has no code for"),
        (identity(STRING), r"'x' is a tensor\(string\)"),
        (identity(BFLOAT16), r"'x' is a tensor\(bfloat16\)"),
        (model([node("Not", ["x"], ["z"]), node("Cast", ["z"], ["y"], to=FLOAT)],
               [tensor("x", [2], BOOL)], [tensor("y", [2])]), "'x' is bool"),
        (model([node("Greater", ["x", "x"], ["y"])], [tensor("x", [2])], [tensor("y", [2], BOOL)]),
         "'y' is bool"),
        (negate((1,) * 7), "'x' has 7 axes, the wire has 6"),
        (model([node("Constant", [], ["y"], value_floats=[1.0])], [], [tensor("y", [1])]), "it has 0 inputs"),
        (negate((1 << 15, 1 << 15)), "its inputs have more than 536870912 bytes"),
        (model([node("Slice", ["x", "s", "s"], ["y"]), node("Constant", [], ["s"], value_ints=[0])][::-1],
               [tensor("x", [4])], [tensor("y", [0])]), r"'y' is float32\[0\]: its extents"),
    ],
)  # fmt: skip
def test_what_the_wire_cannot_carry(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        packed(data)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"y": (1, 8)}, "no input is called 'y'; there are x"),
        ({"x": (1, 9)}, r"input 'x' is float32\[N, 8\], which \(1, 9\) is not"),
        ({"x": (8,)}, "is not"),
        ({"x": (0, 8)}, "is not"),
        ({"x": (-1, 8)}, "is not"),
    ],
)
def test_shapes_that_contradict_the_graph(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        packed(negate(("N", 8)), shapes=shapes)


@pytest.mark.parametrize("name", ["", "a\nb", "a" * 129])
def test_a_name_must_be_printable(name: str) -> None:
    with pytest.raises(ArtifactError, match="is no name"):
        pack_c7x(name, negate((1, 8)))


@pytest.mark.parametrize("latency", [-1.0, float("inf"), float("nan")])
def test_a_latency_is_a_time(latency: float) -> None:
    with pytest.raises(ArtifactError, match="twin"):
        pack_c7x("net", negate((1, 8)), latency=latency)


# -- twins of compiled modules


def test_a_twin_is_attached_to_a_compiled_module() -> None:
    graph = negate((4, "W"), ("W", 4), names="ab")
    flat = model(
        [node("Neg", ["a"], ["n"]), node("Reshape", ["n", "s"], ["b"]),
         node("Constant", [], ["s"], value_ints=[16])][::-1],
        [tensor("a", [4, "W"])], [tensor("b", ["L"])],
    )  # fmt: skip
    data = attach_twin_c7x(linked_v2(), flat, sidecar=SIDECAR, latency=0.02)
    assert data[64 : len(linked_v2())] == linked_v2()[64:]
    found = Dynmod.read(data)
    assert (found.is_twin, tensors(found)) == (False, ["float32[4, 4]", "float32[16]"])
    assert found.twin is not None
    (twin,) = found.twin.networks
    assert (twin.name, twin.onnx, twin.inputs, twin.outputs) == ("net", flat, ["a"], ["b"])
    assert twin.latency == 0.02
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert OnnxExecutor(twin.onnx).run([x])[0].tolist() == (-x).ravel().tolist()
    with pytest.raises(ArtifactError, match=r"twin of net: 'b' is .*, the tensor 'y' is float32\[16\]"):
        attach_twin_c7x(linked_v2(), graph, sidecar=SIDECAR)


def test_a_twin_takes_the_place_of_another_and_keeps_the_description() -> None:
    first = pack_c7x("net", negate((4, 8)))
    again = attach_twin_c7x(first, negate((4, "W"), names="ab"))
    found = Dynmod.read(again)
    assert found.network == Dynmod.read(first).network
    assert found.twin is not None
    assert found.twin.networks[0].inputs == ["a"]
    assert found.is_twin


def test_without_a_description_the_graph_itself_is_one() -> None:
    found = Dynmod.read(attach_twin_c7x(linked_v2(), negate(("N", 8)), name="small"))
    assert found.network is not None
    assert (found.network.name, tensors(found)) == ("small", ["float32[1, 8]"] * 2)
    unnamed = Dynmod.read(attach_twin_c7x(linked_v2(), negate(("N", 8)))).network
    assert unnamed is not None
    assert unnamed.name == "lib0.out"


def test_tensors_are_matched_by_name_and_else_by_order() -> None:
    def two(first: str, second: str) -> bytes:
        return model(
            [node("Sub", [first, second], ["y"])],
            [tensor(first, [1, 8]), tensor(second, [1, 8])],
            [tensor("y", [1, 8])],
        )

    for names, wanted in ((("b", "a"), ["a", "b"]), (("c", "d"), ["c", "d"])):
        twin = Dynmod.read(attach_twin_c7x(pack_c7x("net", two("a", "b")), two(*names))).twin
        assert twin is not None
        assert twin.networks[0].inputs == wanted


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (b"junk", "does not load"),
        (negate((8, 4)), r"'x' is float32\[8, 4\], the tensor 'x' is float32\[4, 8\]"),
        (negate((4, 8), kind=int(TensorProto.FLOAT16)), "'x' is float16"),
        (
            model([node("Add", ["x", "z"], ["y"])], [tensor("x", [4, 8]), tensor("z", [4, 8])],
                  [tensor("y", [4, 8])]),
            "it has 2 tensors where the file has 1 tensors",
        ),
    ],
)  # fmt: skip
def test_a_graph_that_does_not_fit_is_no_twin(graph: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        attach_twin_c7x(pack_c7x("net", negate((4, 8))), graph)


def test_bytes_of_an_image_become_no_floats_on_this_device() -> None:
    image = pack_c7x("net", identity(int(TensorProto.UINT8)))
    with pytest.raises(ArtifactError, match=r"'x' is float32\[2\], the tensor 'x' is uint8\[2\]"):
        attach_twin_c7x(image, negate((2,)))


def test_the_description_must_agree_with_the_module() -> None:
    with pytest.raises(ArtifactError, match="1 inputs are described, the module tells 2"):
        attach_twin_c7x(linked(), negate((4, 4)))
    with pytest.raises(ArtifactError, match="the sidecar cannot be read"):
        attach_twin_c7x(module(), negate((4, 4)), sidecar=b"{")
