from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from repertory.models.dfp import Dfp, Port, write
from repertory.models.errors import ArtifactError, ConfigError, UnknownModel
from repertory.models.formats import PortFormat
from repertory.models.onnx_model import OnnxExecutor
from repertory.models.pack import attach_twin, pack_memx

from .graphs import model, node, tensor

CANVAS = (1, 48, 64, 3)
UINT8 = int(TensorProto.UINT8)
INT64 = int(TensorProto.INT64)


def negate(
    shape: Any = (1, 8), *, name: str = "x", output: Any = None, kind: int = int(TensorProto.FLOAT)
) -> bytes:
    return model(
        [node("Cast", [name], ["f"], to=int(TensorProto.FLOAT)), node("Neg", ["f"], ["y"])],
        [tensor(name, shape, kind)],
        [tensor("y", shape if output is None else output)],
    )


def pack_one(data: bytes, **options: Any) -> Dfp:
    return Dfp.read(pack_memx([("net", data)], **options))


def test_real_models_are_packed_as_configurations(mtcnn: dict[str, bytes]) -> None:
    data = pack_memx(list(mtcnn.items()), shapes={"input_1": CANVAS}, chips=2, latency=0.01, interval=0.004)
    dfp = Dfp.read(data)
    assert dfp.is_twin
    assert (dfp.models, dfp.chips, dfp.generation) == (("pnet", "rnet", "onet"), 2, 4)
    pnet, rnet, onet = dfp.networks
    assert [network.configuration for network in dfp.networks] == [0, 1, 2]
    assert [str(spec) for spec in pnet.network.outputs] == ["float32[1, 19, 27, 4]", "float32[1, 19, 27, 2]"]
    assert {spec.layout for spec in (*pnet.network.inputs, *pnet.network.outputs)} == {"NHWC"}
    assert [port.shape for port in rnet.outputs] == [(1, 1, 1, 4), (1, 1, 1, 2)]
    assert [(port.number, port.layer_name) for port in onet.outputs] == [
        (0, "dense_5"),
        (1, "dense_6"),
        (2, "softmax_2"),
    ]
    assert rnet.twin is not None
    assert rnet.twin.onnx == mtcnn["rnet"]
    assert (rnet.twin.inputs, rnet.twin.outputs) == (["input_2"], ["dense_2", "softmax_1"])
    assert (rnet.twin.latency, rnet.twin.interval) == (0.01, 0.004)
    assert data == pack_memx(
        list(mtcnn.items()), shapes={"input_1": CANVAS}, chips=2, latency=0.01, interval=0.004
    )


def test_co_mapped_models_share_a_configuration_and_its_port_numbers(mtcnn: dict[str, bytes]) -> None:
    dfp = Dfp.read(pack_memx([("r", mtcnn["rnet"]), ("o", mtcnn["onet"])], co_map=True))
    assert [network.configuration for network in dfp.networks] == [0, 0]
    assert [port.number for port in dfp.inputs] == [0, 1]
    assert [port.number for port in dfp.outputs] == [0, 1, 2, 3, 4]
    assert [port.model_index for port in dfp.outputs] == [0, 0, 1, 1, 1]


def over_the_wire(port: Port, array: Any) -> Any:
    frame = np.empty(port.nbytes, np.uint8)
    port.encode(array, frame)
    return port.decode(frame)


def test_a_frame_over_the_wire_is_the_answer_of_the_graph(mtcnn: dict[str, bytes]) -> None:
    (network,) = pack_one(mtcnn["rnet"]).networks
    assert network.twin is not None
    frame = np.random.default_rng(5).random((1, 24, 24, 3), np.float32)
    executor = OnnxExecutor(network.twin.onnx)
    outputs = executor.run([over_the_wire(network.inputs[0], frame)])
    for port, output, wanted in zip(network.outputs, outputs, executor.run([frame]), strict=True):
        assert np.array_equal(over_the_wire(port, output), wanted)


def test_an_open_extent_needs_a_shape(mtcnn: dict[str, bytes]) -> None:
    with pytest.raises(ArtifactError, match=r"pnet: input 'input_1' .*--shape input_1=1,<M1>,<M2>,3"):
        pack_memx([("pnet", mtcnn["pnet"])])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (negate((4, 8)), "fixed batch of 4: export the model with a batch of 1"),
        (negate(()), "'x' has 0 axes"),
        (negate((1, 2, 3, 4, 5, 6)), "'x' has 6 axes"),
        (negate((1, 8), kind=INT64), "'x' is int64; ports take float32 and uint8"),
        (b"junk", "does not load"),
        (
            model(
                [node("Identity", ["x"], ["y"])], [tensor("x", [1, 4], UINT8)], [tensor("y", [1, 4], UINT8)]
            ),
            "output 'y' is uint8; ports give float32 only",
        ),
        (
            model([node("ReduceSum", ["x"], ["y"], keepdims=0)], [tensor("x", [1, 4])], [tensor("y", [])]),
            "'y' has 0 axes",
        ),
        (
            model([node("Transpose", ["x"], ["y"])], [tensor("x", ["N", 4])], [tensor("y", [4, "N"])]),
            r"'y' has the extents \(4, 1\) for one frame",
        ),
        (
            model([node("Constant", [], ["y"], value_floats=[1.0])], [], [tensor("y", [1])]),
            "no input, or no output",
        ),
    ],
)
def test_what_a_port_cannot_be(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        pack_one(data)


def test_outputs_that_inference_cannot_tell_are_seen_in_a_run() -> None:
    # the target of the Reshape is computed, from values that shape inference does not follow
    data = model(
        [
            node("Constant", [], ["target"], value_floats=[1.0, 4.0, 3.0]),
            node("Sqrt", ["target"], ["root"]),
            node("Mul", ["root", "root"], ["square"]),
            node("Round", ["square"], ["whole"]),
            node("Cast", ["whole"], ["shape"], to=INT64),
            node("Reshape", ["x", "shape"], ["y"]),
        ],
        [tensor("x", ["N", 12])],
        [tensor("y", [None, None, None])],
    )
    (output,) = pack_one(data).networks[0].network.outputs
    assert output.shape == (1, 4, 3)


def conv(to_first: list[int] | None, to_last: list[int] | None, channels: int, shape: list[Any]) -> bytes:
    """Scale, (transpose,) convolve, (transpose,) squash."""
    nodes = [
        node("Constant", [], ["scale"], value_float=2.0),
        node("Constant", [], ["flat"], value_floats=[0.5] * (6 * channels)),
        node("Constant", [], ["form"], value_ints=[6, channels, 1, 1]),
        node("Reshape", ["flat", "form"], ["kernel"]),
        node("Mul", ["scale", "x"], ["scaled"]),
        node("Transpose", ["scaled"], ["first"], perm=to_first)
        if to_first
        else node("Identity", ["scaled"], ["first"]),
        node("Conv", ["first", "kernel"], ["made"]),
        node("Transpose", ["made"], ["last"], perm=to_last)
        if to_last
        else node("Identity", ["made"], ["last"]),
        node("Sigmoid", ["last"], ["y"]),
    ]
    return model(nodes, [tensor("x", shape)], [tensor("y", [None] * 4)])


@pytest.mark.parametrize(
    ("data", "layouts"),
    [
        (conv(None, None, 3, ["N", 3, 8, 9]), ["NCHW", "NCHW"]),
        (conv([0, 3, 1, 2], [0, 2, 3, 1], 3, ["N", 8, 9, 3]), ["NHWC", "NHWC"]),
        (conv([0, 3, 1, 2], None, 3, ["N", 8, 9, 3]), ["NHWC", "NCHW"]),
        # against what the extents suggest
        (conv([0, 3, 1, 2], [0, 2, 3, 1], 5, [1, 3, 9, 5]), ["NHWC", "NHWC"]),
        (negate([1, 8, 9, 3]), ["NHWC", "NHWC"]),
        (negate([1, 3, 8, 9]), ["NCHW", "NCHW"]),
        (negate([1, 7, 8, 9]), ["NCHW", "NCHW"]),
        (negate([1, 8, 3]), ["NWC", "NWC"]),
        (negate([1, 8]), ["NC", "NC"]),
        (negate([1]), ["N", "N"]),
        (negate([1, 2, 5, 6, 3]), ["NHWZC", "NHWZC"]),
    ],
)
def test_layouts_come_from_structure_and_then_from_extents(data: bytes, layouts: list[str]) -> None:
    network = pack_one(data).networks[0].network
    assert [spec.layout for spec in (*network.inputs, *network.outputs)] == layouts


def test_layouts_can_be_given() -> None:
    dfp = pack_one(negate([1, 8, 9, 3]), layouts={"x": "NCHW", "net:y": "NWHC"})
    assert dfp.inputs[0].shape == (9, 3, 1, 8)
    assert dfp.outputs[0].shape == (9, 8, 1, 3)
    assert dfp.networks[0].network.inputs[0].shape == (1, 8, 9, 3)


def test_bytes_are_an_image_port() -> None:
    dfp = pack_one(negate([1, 8, 9, 3], kind=UINT8))
    assert dfp.inputs[0].format is PortFormat.RGB888
    assert dfp.networks[0].network.inputs[0].dtype == np.uint8
    assert dfp.outputs[0].format is PortFormat.FLOAT32


def test_an_image_port_is_for_bytes_and_its_graph_may_take_floats() -> None:
    dfp = pack_one(negate([1, 8, 9, 3]), formats={"x": PortFormat.RGB888})
    (network,) = dfp.networks
    assert [spec.dtype for spec in (*network.network.inputs, *network.network.outputs)] == [
        np.uint8,
        np.float32,
    ]
    again = attach_twin(write(dfp), negate([1, 8, 9, 3]))
    assert Dfp.read(again).networks[0].inputs == network.inputs
    with pytest.raises(ConfigError, match="input 'x' is uint8, which BF16 is not for"):
        pack_one(negate([1, 8], kind=UINT8), formats={"x": PortFormat.BF16})


def test_formats_by_name_and_for_all_others(mtcnn: dict[str, bytes]) -> None:
    models = [("r", mtcnn["rnet"]), ("o", mtcnn["onet"])]
    named = {"dense_2": PortFormat.BF16, "o:softmax_2": PortFormat.FLOAT32, "r:input_2": PortFormat.RGB888}
    dfp = Dfp.read(pack_memx(models, formats=named, port_format=PortFormat.GBF80_ROW))
    assert [port.format.name for port in dfp.inputs] == ["RGB888", "GBF80_ROW"]
    assert [port.format.name for port in dfp.outputs] == [
        "BF16",
        "GBF80_ROW",
        "GBF80_ROW",
        "GBF80_ROW",
        "FLOAT32",
    ]
    assert [port.nbytes for port in dfp.outputs] == [8, 12, 12, 20, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": {"z": (1, 8)}}, "no tensor is called 'z'; there are net:x, x"),
        ({"shapes": {"y": (1, 8)}}, "no tensor is called 'y'"),
        ({"shapes": {"x": (2, 8)}}, r"\(2, 8\) is not"),
        ({"shapes": {"x": (1, 9)}}, r"\(1, 9\) is not"),
        ({"shapes": {"x": (1, 8, 1)}}, r"\(1, 8, 1\) is not"),
        ({"layouts": {"x": "NHWC"}}, "cannot have the layout 'NHWC'"),
        ({"layouts": {"q": "NC"}}, "no tensor is called 'q'"),
        ({"port_format": PortFormat.RGB888}, "output 'y' cannot be RGB888, a format of inputs alone"),
        ({"formats": {"y": PortFormat.YUV422}}, "output 'y' cannot be YUV422"),
        ({"formats": {"x": PortFormat.RGB565}}, "no port can be RGB565, as 'x' is told to be"),
        ({"formats": {"q": PortFormat.FLOAT32}}, "no tensor is called 'q'; there are net:x, net:y, x, y"),
    ],
)
def test_options_that_contradict_the_graph(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pack_one(negate(), **options)


def test_options_of_one_model_among_several() -> None:
    data = negate(["N", "T"])
    dfp = Dfp.read(pack_memx([("a", data), ("b", data)], shapes={"a:x": (1, 5), "x": (1, 7)}))
    assert [port.shape for port in dfp.inputs] == [(1, 1, 1, 5), (1, 1, 1, 7)]


def test_names_are_told_apart_and_must_be_printable() -> None:
    assert Dfp.read(pack_memx([("a", negate()), ("a", negate())])).models == ("a", "a-2")
    for name in ("", "a\nb", "a" * 129):
        with pytest.raises(ArtifactError, match="is no name"):
            pack_memx([(name, negate())])


def test_a_configuration_has_32_ports_and_a_file_of_several_has_more() -> None:
    models = [(f"m{index}", negate()) for index in range(33)]
    with pytest.raises(ArtifactError, match="33 inputs in one configuration, a device has 32"):
        pack_memx(models, co_map=True)
    assert len(Dfp.read(pack_memx(models)).networks) == 33
    assert Dfp.read(pack_memx(models[:32], co_map=True)).inputs[-1].number == 31


def test_no_models_and_impossible_groups() -> None:
    with pytest.raises(ArtifactError, match="are none"):
        pack_memx([])
    with pytest.raises(ArtifactError, match="made for 5 chips"):
        pack_one(negate(), chips=5)
    with pytest.raises(ArtifactError, match="exceeds"):
        pack_one(negate(["N", "T"]), shapes={"x": (1, 1 << 27)})


def compiled(*names: str) -> bytes:
    """A file as a vendor's compiler makes it, for networks that take and give (1, 1, 1, 8)."""
    dfp = Dfp(
        models=names,
        inputs=tuple(Port(n, model_index=n, layer_name="x", shape=(1, 1, 1, 8)) for n in range(len(names))),
        outputs=tuple(
            Port(n, model_index=n, layer_name="out", shape=(1, 1, 1, 8)) for n in range(len(names))
        ),
        chips=4,
        compiler_version="2.1",
        hw_size=8,
    )
    return write(dfp, hardware=b"compiled")


def test_a_twin_is_attached_to_a_compiled_file() -> None:
    graph = negate((1, 1, 1, 8))
    dfp = Dfp.read(attach_twin(compiled("net"), graph, latency=0.02))
    assert dfp.hw_size == 8
    assert not dfp.is_twin
    twin = dfp.networks[0].twin
    assert twin is not None
    assert (twin.onnx, twin.inputs, twin.outputs, twin.latency) == (graph, ["x"], ["y"], 0.02)


def test_twins_of_several_networks_are_attached_one_by_one() -> None:
    graph = negate(("N", 1, "W", 8))
    with pytest.raises(UnknownModel, match="holds a, b"):
        attach_twin(compiled("a", "b"), graph)
    with pytest.raises(UnknownModel, match="c was named"):
        attach_twin(compiled("a", "b"), graph, network="c")
    one = attach_twin(compiled("a", "b"), graph, network="b")
    assert [network.twin is not None for network in Dfp.read(one).networks] == [False, True]
    both = attach_twin(attach_twin(one, graph, network="a"), graph, network="b")
    assert [network.twin is not None for network in Dfp.read(both).networks] == [True, True]


def test_tensors_are_matched_by_name_and_else_by_order() -> None:
    def two(first: str, second: str) -> bytes:
        return model(
            [node("Neg", [first], ["p"]), node("Abs", [second], ["q"])],
            [tensor(first, [1, 8]), tensor(second, [1, 8])],
            [tensor("p", [1, 8]), tensor("q", [1, 8])],
        )

    packed = pack_memx([("net", two("a", "b"))])
    swapped = Dfp.read(attach_twin(packed, two("b", "a"))).networks[0].twin
    assert swapped is not None
    assert swapped.inputs == ["a", "b"]
    renamed = Dfp.read(attach_twin(packed, two("c", "d"))).networks[0].twin
    assert renamed is not None
    assert renamed.inputs == ["c", "d"]


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (lambda: negate((1, 8)), r"'x' is float32\[1, 8\], the port 'x' is float32\[1, 1, 1, 8\]"),
        (lambda: negate((1, 1, 1, 8), kind=UINT8), "'x' is uint8"),
        (
            lambda: model(
                [node("Add", ["x", "z"], ["y"])],
                [tensor("x", [1, 1, 1, 8]), tensor("z", [1, 1, 1, 8])],
                [tensor("y", [1, 1, 1, 8])],
            ),
            "it has 2 tensors where the file has 1 ports",
        ),
        (lambda: b"junk", "does not load"),
    ],
)
def test_a_graph_that_does_not_fit_is_no_twin(graph: Callable[[], bytes], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        attach_twin(compiled("net"), graph())
