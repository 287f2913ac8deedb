"""DFP files for simulated devices, made from ONNX graphs: what a compiler does, without the compiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from . import dfp as dfps
from . import formats, layout, twin
from .dfp import Dfp, DfpNetwork, Port
from .errors import ArtifactError, ConfigError, RepertoryError
from .formats import PortFormat
from .mxpack import Buffer
from .onnx_graph import Channels, OnnxGraph
from .onnx_model import OnnxExecutor, read_specs
from .port import MAX_PORTS
from .program import Network
from .spec import TensorSpec
from .twin import Twin, TwinNetwork

__all__ = ["attach_twin", "pack_memx"]

_MAX_RANK = 5
_MAX_NAME = 128
_FIRST = {3: "NCW", 4: "NCHW", 5: "NCZHW"}
_LAST = {3: "NWC", 4: "NHWC", 5: "NHWZC"}
_IMAGE_CHANNELS = (1, 3, 4)


def pack_memx(
    models: Sequence[tuple[str, bytes]],
    *,
    shapes: Mapping[str, tuple[int, ...]] = {},
    layouts: Mapping[str, str] = {},
    chips: int = 4,
    co_map: bool = False,
    port_format: PortFormat | Mapping[str, PortFormat] = PortFormat.FLOAT32,
    latency: float | None = None,
    interval: float | None = None,
) -> bytes:
    """Write a DFP that simulated devices run and hardware cannot: the same bytes for the same arguments.

    The graphs lie in it as they are. Each frame is one item of their batch.

    Args:
        models: pairs of a name and a whole ONNX file. Equal names are told apart by a number.
        shapes: extents, the batch's 1 first, of inputs that the graph leaves open. Keys of this and of the
            other mappings are tensor names; `model:tensor` where two models share one.
        layouts: axis letters such as `NHWC`, where the graph's structure tells none or a wrong one. They
            decide how a frame lies on the wire, never what the caller sees.
        chips: of the device group.
        co_map: whether all are resident together; else each is a configuration to swap to.
        port_format: of float32 tensors, for all or by name (FLOAT32 if unnamed). uint8 ones are RGB888.
        latency: seconds from the last input to the last output, for all networks.
        interval: seconds between the starts of two frames, for all networks.

    Raises:
        ArtifactError: a graph is malformed or has what a port cannot be; says which tensor and why.
        ConfigError: an option contradicts the graphs or names nothing in them; or onnx is not installed.
    """
    names = dfps.distinct(_valid(name) for name, _ in models)
    options = _Options(shapes, layouts, port_format)
    networks = [_plan(name, data, options) for name, (_, data) in zip(names, models, strict=True)]
    options.check_used(networks)
    sets = [0 if co_map else index for index in range(len(networks))]
    return dfps.write(
        Dfp(
            models=names,
            inputs=_ports([plan.inputs for plan in networks], sets, "inputs"),
            outputs=_ports([plan.outputs for plan in networks], sets, "outputs"),
            chips=chips,
            compiler_version=dfps.PACKED_BY,
            twin=Twin(twin.VERSION, [plan.twin(latency, interval) for plan in networks]),
        )
    )


def attach_twin(
    data: Buffer,
    onnx: bytes,
    *,
    network: str | None = None,
    latency: float | None = None,
    interval: float | None = None,
) -> bytes:
    """Put a graph into a DFP, compiled or packed, for simulated devices to run in place of a network.

    Args:
        data: the DFP.
        onnx: a graph that takes and gives what the callers of the network do. Its tensors are matched to
            the ports by name, or by their order where the names differ.
        network: which one, where the file holds several. Twins of the others stay.
        latency: seconds from the last input to the last output.
        interval: seconds between the starts of two frames.

    Returns:
        The changed file. Its compiled part is as it was.

    Raises:
        ArtifactError: the DFP or the graph is malformed, or they do not fit each other.
        ConfigError: `network` names none, or is missing though there are several.
    """
    dfp = Dfp.read(data)
    target = _chosen(dfp, network)
    wanted, graph = target.network, read_specs(onnx, f"the twin of {target.name}")
    made = TwinNetwork(
        target.name,
        onnx,
        _matched(wanted.inputs, graph.inputs, graph.name),
        _matched(wanted.outputs, graph.outputs, graph.name),
        latency,
        interval,
    )
    others = [other for other in dfp.twin.networks if other.name != target.name] if dfp.twin else []
    return dfps.with_twin(data, Twin(twin.VERSION, [*others, made]))


@final
@dataclass(frozen=True, slots=True)
class _Plan:
    """A network whose ports have all but their numbers."""

    name: str
    onnx: bytes
    inputs: list[Port]
    outputs: list[Port]

    def twin(self, latency: float | None, interval: float | None) -> TwinNetwork:
        inputs, outputs = ([port.layer_name for port in ports] for ports in (self.inputs, self.outputs))
        return TwinNetwork(self.name, self.onnx, inputs, outputs, latency, interval)
