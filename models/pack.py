"""DFP files for simulated devices, made from ONNX graphs: what a compiler does, without the compiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from . import dfp as dfps
from . import twin as twins
from .dfp import Dfp, DfpNetwork, Port
from .errors import ArtifactError, UnknownModel
from .formats import PortFormat
from .match import matched
from .mxpack import Buffer
from .onnx_model import read_specs
from .port import MAX_PORTS
from .port_plan import Options, Plan, plan
from .twin import Twin, TwinNetwork

__all__ = ["attach_twin", "pack_memx"]

_MAX_NAME = 128


def pack_memx(
    models: Sequence[tuple[str, bytes]],
    *,
    shapes: Mapping[str, tuple[int, ...]] = {},
    layouts: Mapping[str, str] = {},
    chips: int = 4,
    co_map: bool = False,
    formats: Mapping[str, PortFormat] = {},
    port_format: PortFormat = PortFormat.FLOAT32,
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
        formats: how ports hold their numbers; inputs and outputs FLOAT32, BF16, GBF80 or GBF80_ROW. An
            input can be RGB888: its callers then give uint8, and a float32 graph gets these numbers as
            floats. uint8 inputs are RGB888 in any case.
        port_format: of float32 tensors that `formats` does not name.
        latency: seconds from the last input to the last output, for all networks.
        interval: seconds between the starts of two frames, for all networks.

    Raises:
        ArtifactError: a graph is malformed or has what a port cannot be; says which tensor and why.
        ConfigError: an option contradicts the graphs or names nothing in them; or onnx is not installed.
    """
    names = dfps.distinct(_valid(name) for name, _ in models)
    options = Options(shapes, layouts, formats, port_format)
    plans = [plan(name, data, options) for name, (_, data) in zip(names, models, strict=True)]
    options.check_names(plans)
    sets = [0 if co_map else index for index in range(len(plans))]
    return dfps.write(
        Dfp(
            models=names,
            inputs=_placed([planned.inputs for planned in plans], sets, "inputs"),
            outputs=_placed([planned.outputs for planned in plans], sets, "outputs"),
            chips=chips,
            compiler_version=dfps.PACKED_BY,
            twin=Twin(twins.VERSION, [_twin(planned, latency, interval) for planned in plans]),
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
        UnknownModel: `network` names none, or is missing though there are several.
        ConfigError: onnxruntime is not installed.
    """
    dfp = Dfp.read(data)
    target = _chosen(dfp.networks, network)
    wanted, graph = target.network, read_specs(onnx, f"twin of {target.name}")
    made = TwinNetwork(
        target.name,
        onnx,
        matched(wanted.inputs, graph.inputs, graph.name),
        matched(wanted.outputs, graph.outputs, graph.name),
        latency,
        interval,
    )
    others = [other for other in dfp.twin.networks if other.name != target.name] if dfp.twin else []
    return dfps.with_twin(data, Twin(twins.VERSION, [*others, made]))


def _valid(name: str) -> str:
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise ArtifactError(f"{name[:_MAX_NAME]!r} is no name: up to {_MAX_NAME} printable characters are")
    return name


def _placed(planned: Sequence[Sequence[Port]], sets: Sequence[int], what: str) -> tuple[Port, ...]:
    """Number the ports from 0 within each configuration."""
    placed: list[Port] = []
    taken = dict.fromkeys(sets, 0)
    for index, (ports, port_set) in enumerate(zip(planned, sets, strict=True)):
        first = taken[port_set]
        taken[port_set] += len(ports)
        if taken[port_set] > MAX_PORTS:
            raise ArtifactError(f"{taken[port_set]} {what} in one configuration, a device has {MAX_PORTS}")
        placed += [
            replace(port, number=number, port_set=port_set, model_index=index)
            for number, port in enumerate(ports, first)
        ]
    return tuple(placed)


def _twin(planned: Plan, latency: float | None, interval: float | None) -> TwinNetwork:
    inputs, outputs = ([port.layer_name for port in ports] for ports in (planned.inputs, planned.outputs))
    return TwinNetwork(planned.name, planned.onnx, inputs, outputs, latency, interval)


def _chosen(networks: Sequence[DfpNetwork], name: str | None) -> DfpNetwork:
    chosen = [network for network in networks if name in (None, network.name)]
    if len(chosen) != 1:
        held = ", ".join(network.name for network in networks)
        raise UnknownModel(f"a twin is for one network; {name or 'none'} was named and the file holds {held}")
    return chosen[0]
