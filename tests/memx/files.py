"""DFP files for the tests: small graphs, packed as twins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from repertory.models.dfp import PACKED_BY, Dfp, Port, write
from repertory.models.twin import VERSION, Twin, TwinNetwork

__all__ = ["Net", "dfp", "infer", "onnx_net"]

CHANNELS, HEIGHT, WIDTH = 3, 4, 6


@dataclass(frozen=True)
class Net:
    """A network with one image-like input and two outputs; `inputs` flows feed it."""

    name: str = "net"
    seed: int = 0
    first_flow: int = 0
    configuration: int = 0
    inputs: int = 1
    outputs: int = 2
    latency: float | None = 0.010
    interval: float | None = 0.004


def onnx_net(net: Net) -> bytes:
    """Sum the inputs, convolve (NCHW), and give tanh of it and its mean."""
    kernel = np.random.default_rng(net.seed).standard_normal((2, CHANNELS, 3, 3)).astype(np.float32)
    names = [f"x{index}" for index in range(net.inputs)]
    nodes = [
        helper.make_node("Sum", names, ["sum"]),
        helper.make_node("Conv", ["sum", "kernel"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Tanh", ["conv"], ["y0"]),
        helper.make_node("GlobalAveragePool", ["conv"], ["y1"]),
    ]
    graph = helper.make_graph(
        nodes if net.outputs == 2 else nodes[:3],
        net.name,
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, CHANNELS, HEIGHT, WIDTH])
            for name in names
        ],
        [
            helper.make_tensor_value_info("y0", TensorProto.FLOAT, [1, 2, HEIGHT, WIDTH]),
            helper.make_tensor_value_info("y1", TensorProto.FLOAT, [1, 2, 1, 1]),
        ][: net.outputs],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    checker: Any = onnx.checker
    checker.check_model(model)
    return bytes(model.SerializeToString())


def dfp(*nets: Net, chips: int = 4, twins: bool = True) -> bytes:
    """Write a file with these networks."""
    inputs = [
        _port(net, index, f"x{place}", place, (HEIGHT, WIDTH, 1, CHANNELS))
        for index, net in enumerate(nets)
        for place in range(net.inputs)
    ]
    outputs = [
        _port(net, index, f"y{place}", place, shape)
        for index, net in enumerate(nets)
        for place, shape in enumerate([(HEIGHT, WIDTH, 1, 2), (1, 1, 1, 2)][: net.outputs])
    ]
    networks = [
        TwinNetwork(
            net.name,
            onnx_net(net),
            [f"x{place}" for place in range(net.inputs)],
            [f"y{place}" for place in range(net.outputs)],
            net.latency,
            net.interval,
        )
        for net in nets
    ]
    return write(
        Dfp(
            models=tuple(net.name for net in nets),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            chips=chips,
            compiler_version=PACKED_BY,
            twin=Twin(VERSION, networks) if twins else None,
        )
    )


def _port(net: Net, index: int, name: str, place: int, shape: tuple[int, int, int, int]) -> Port:
    height, width, _, channels = shape
    return Port(
        net.first_flow + place,
        port_set=net.configuration,
        model_index=index,
        layer_name=f"{net.name}/{name}",
        shape=shape,
        raw_shape=(1, channels, height, width),
    )


def infer(net: Net, *frames: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Compute with onnxruntime itself, from wire frames (h, w, z, c) to wire frames."""
    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(onnx_net(net), options, providers=["CPUExecutionProvider"])
    feeds = {f"x{place}": frame[:, :, 0, :].transpose(2, 0, 1)[None] for place, frame in enumerate(frames)}
    results = session.run(None, {name: np.ascontiguousarray(value) for name, value in feeds.items()})
    return [np.ascontiguousarray(result[0].transpose(1, 2, 0)[:, :, None, :]) for result in results]
