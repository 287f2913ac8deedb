"""What a file may hold: several networks, no twin, other layouts, bytes instead of floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from repertory.models.errors import ArtifactError, InvalidInput, UnknownModel
from repertory.models.pack import pack_memx
from repertory.runtime.demo.photos import network
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.virtual import VirtualWorld
from tests.memx.files import Net, dfp, onnx_net

from .support import Floats, Machine, direct, expected, image

SHAPES = {"rnet": (1, 24, 24, 3), "onet": (1, 48, 48, 3)}
onnx: Any = helper
pytestmark = pytest.mark.virtual


def _noise(shape: tuple[int, ...], seed: int) -> Floats:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("co_map", [True, False])
async def test_two_real_networks_of_one_file(co_map: bool, anyio_backend: object) -> None:
    content = pack_memx([(name, network(name)) for name in SHAPES], co_map=co_map)
    machine = Machine(SimulatedMx3())
    answers: dict[tuple[str, int], dict[str, Floats]] = {}

    async def ask(model: Model, seed: int) -> None:
        answers[model.name, seed] = await model.infer(_noise(SHAPES[model.name], seed))

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = [await rt.load(content, network=name) for name in SHAPES]
        async with anyio.create_task_group() as tasks:
            for seed in range(10):
                for model in models:
                    tasks.start_soon(ask, model, seed)
        swaps = rt.statistics().groups["group 0"].swaps
    for (name, seed), answer in answers.items():
        wanted = direct(network(name), _noise(SHAPES[name], seed))
        assert {port: array.tobytes() for port, array in answer.items()} == {
            port: array.tobytes() for port, array in wanted.items()
        }
    assert len(answers) == 20
    assert (swaps == 1) is co_map
    assert machine.library.faults == []


@pytest.mark.parametrize("co_map", [True, False])
@pytest.mark.parametrize("wanted", [None, "pnet"])
async def test_a_network_must_be_named(co_map: bool, wanted: str | None, anyio_backend: object) -> None:
    content = pack_memx([(name, network(name)) for name in SHAPES], co_map=co_map)
    async with open_runtime(["sim+memx://0"], world=VirtualWorld()) as rt:
        with pytest.raises(UnknownModel, match=r"rnet.*onet|onet.*rnet"):
            await rt.load(content, network=wanted)
        model = await rt.load(content, network="onet")
        assert (model.name, model.inputs[0].shape) == ("onet", SHAPES["onet"])


async def test_a_file_without_a_twin_takes_one(tmp_path: Path, anyio_backend: object) -> None:
    net = Net(outputs=1)
    bare = dfp(net, twins=False)
    path = tmp_path / "twin.onnx"
    path.write_bytes(onnx_net(net))
    async with open_runtime(["sim+memx://0"], world=VirtualWorld()) as rt:
        with pytest.raises(ArtifactError, match=r"<bytes> carries no twin: a simulator needs twin="):
            await rt.load(bare)
        twins: tuple[bytes | Path | str, ...] = (onnx_net(net), path, str(path))
        for number, twin in enumerate(twins):
            model = await rt.load(bare, name=f"model {number}", twin=twin)
            answer = await model.infer(image(number))
            assert answer.tobytes() == expected(net, image(number))[0].tobytes()
        with pytest.raises(ArtifactError, match=r"nowhere\.onnx"):
            await rt.load(bare, name="other", twin=tmp_path / "nowhere.onnx")


@pytest.mark.parametrize(
    "twin", [b"", b"no graph", onnx_net(Net(outputs=2)), onnx_net(Net(inputs=2, outputs=1))]
)
async def test_a_twin_that_does_not_fit_is_refused(twin: bytes, anyio_backend: object) -> None:
    async with open_runtime(["sim+memx://0"], world=VirtualWorld()) as rt:
        with pytest.raises(ArtifactError):
            await rt.load(dfp(Net(outputs=1), twins=False), twin=twin)
        assert rt.models() == []


async def test_a_twin_given_replaces_the_one_inside(anyio_backend: object) -> None:
    inside, given = Net(seed=1, outputs=1), Net(seed=2, outputs=1)
    async with open_runtime(["sim+memx://0"], world=VirtualWorld()) as rt:
        model = await rt.load(dfp(inside), twin=onnx_net(given))
        assert (await model.infer(image(0))).tobytes() == expected(given, image(0))[0].tobytes()


def _convolution(dtype: int = TensorProto.FLOAT) -> bytes:
    """NCHW in, NCHW and a vector out; a uint8 input is made float inside."""
    kernel = np.random.default_rng(9).standard_normal((5, 3, 3, 3)).astype(np.float32)
    nodes = [
        onnx.make_node("Cast", ["x"], ["float"], to=TensorProto.FLOAT),
        onnx.make_node("Conv", ["float", "kernel"], ["map"], pads=[1, 1, 1, 1], strides=[2, 1]),
        onnx.make_node("ReduceMax", ["map"], ["peak"], axes=[2, 3], keepdims=0),
    ]
    graph = onnx.make_graph(
        nodes,
        "convolution",
        [onnx.make_tensor_value_info("x", dtype, [1, 3, 10, 7])],
        [
            onnx.make_tensor_value_info("map", TensorProto.FLOAT, [1, 5, 5, 7]),
            onnx.make_tensor_value_info("peak", TensorProto.FLOAT, [1, 5]),
        ],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    model = onnx.make_model(graph, opset_imports=[onnx.make_opsetid("", 17)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


async def test_an_nchw_network_keeps_its_layout_for_the_caller(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    array = _noise((1, 3, 10, 7), 1)
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(pack_memx([("conv", _convolution())]))
        assert model.inputs[0].shape == (1, 3, 10, 7)
        for given in (array, np.asfortranarray(array), array[::1]):
            answer = await model.infer(given)
            wanted = direct(_convolution(), array)
            assert {port: a.tobytes() for port, a in answer.items()} == {
                port: a.tobytes() for port, a in wanted.items()
            }
            assert all(a.flags.c_contiguous and a.flags.writeable for a in answer.values())
    (frame, *_) = [args[3] for args in machine.named("memx_stream_ifmap")]
    assert frame == array[0].transpose(1, 2, 0).tobytes()


async def test_bytes_stay_bytes(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    onnx_file = _convolution(TensorProto.UINT8)
    pixels: NDArray[np.uint8] = np.random.default_rng(3).integers(0, 256, (1, 3, 10, 7), np.uint8)
    pixels.flags.writeable = False
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(pack_memx([("conv", onnx_file)]))
        assert model.inputs[0].dtype == np.uint8
        answer = await model.infer(pixels)
        with pytest.raises(InvalidInput, match="uint8"):
            await model.infer(_noise((1, 3, 10, 7), 1))
    wanted = direct(onnx_file, pixels)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert {port: a.tobytes() for port, a in answer.items()} == {
        port: a.tobytes() for port, a in wanted.items()
    }
    (frame,) = [args[3] for args in machine.named("memx_stream_ifmap")]
    assert frame == pixels[0].transpose(1, 2, 0).tobytes().ljust(212, b"\0")
