"""What is to be said of a model for an NPU (`.xmm`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repertory.models.errors import ArtifactError, ConfigError
from repertory.models.program import Network
from repertory.models.xmm import HIGH, Xmm
from repertory.models.xmm_numbers import quantisation, tensor_spec
from repertory.models.xmm_parts import XmmProgram
from repertory.models.xmm_tensor import Region, XmmTensor

from .command import table
from .network_facts import network_facts

__all__ = ["save_private_data", "xmm_facts", "xmm_text"]


def xmm_facts(path: str, data: bytes) -> dict[str, Any]:
    """Return it for a program."""
    xmm = Xmm.read(data)
    sizes = xmm.sizes
    constants = [each for each in xmm.tensors if each.region == Region.CONST]
    return {
        "file": path,
        "format": "xmm",
        "bytes": len(data),
        "version": xmm.version,
        "model_type": xmm.model_type,
        "simulation_twin": xmm.is_twin,
        "programs": [_program_facts(each) for each in xmm.programs],
        "regions": {
            "params": sizes.params,
            "work": sizes.work,
            "inputs": sizes.inputs,
            "outputs": sizes.outputs,
            "total": xmm.total,
        },
        "params_offset": xmm.params[0],
        "weightsize": xmm.weightsize,
        "worksize": xmm.worksize,
        "reuse": xmm.reuse,
        "constants": len(constants),
        "nodes": len(xmm.nodes),
        "private_data_bytes": len(xmm.private_data) if xmm.private_data else 0,
        "tensors": {
            "inputs": [_tensor_facts(each) for each in xmm.inputs],
            "outputs": [_tensor_facts(each) for each in xmm.outputs],
        },
        "networks": [network_facts(_network(xmm, Path(path).stem))],
    }


def xmm_text(facts: dict[str, Any]) -> Iterator[str]:
    """Say it to a person."""
    yield f"{facts['file']}: xmm, {facts['bytes']} bytes"
    kind = "simulation twin: no hardware runs it" if facts["simulation_twin"] else "compiled"
    runs = "" if facts["model_type"] == HIGH else f" (an NPU runs {HIGH})"
    yield f"  {facts['version'] or 'no version'}, model type {facts['model_type']}{runs}; {kind}"
    for program in facts["programs"]:
        yield (
            f"  program {program['name']}: {program['size']} bytes at {program['offset']},"
            f" CRC {program['crc']:#010x}, {program['total']} bytes of memory"
        )
    regions = facts["regions"]
    yield (
        f"  regions: params {regions['params']}, work {regions['work']}, inputs {regions['inputs']},"
        f" outputs {regions['outputs']} bytes; {regions['total']} together, each rounded up to 16"
    )
    yield f"  weightsize {facts['weightsize']}, worksize {facts['worksize']} (memory reuse {facts['reuse']})"
    yield f"  {facts['constants']} constants, their CRCs are right; {facts['nodes']} nodes"
    if facts["private_data_bytes"]:
        yield f"  {facts['private_data_bytes']} bytes of private data"
    (network,) = facts["networks"]
    yield f"  network {network['name']}"
    rows = [
        (f"    {side[:-1]:6} {each['name']}", each["type"], *(_said(each[key]) for key in _COLUMNS))
        for side, tensors in facts["tensors"].items()
        for each in tensors
    ]
    yield from table(("    tensor", "type", *_COLUMNS), rows)


def save_private_data(data: bytes, path: Path) -> int:
    """Write a model's private data to a file, and return how many bytes that are.

    Raises:
        ArtifactError: it has none that could be found.
        ConfigError: the file cannot be written.
    """
    private = Xmm.read(data).private_data
    if private is None:
        raise ArtifactError("it has no private data, or has it where only the vendor's library finds it")
    try:
        path.write_bytes(private)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return len(private)


_COLUMNS = ("shape", "pitches", "offset", "size", "scale", "zero_point")


def _said(value: float | list[int]) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else f"{value:g}"


def _network(xmm: Xmm, stem: str) -> Network:
    return Network(
        xmm.name or stem,
        tuple(tensor_spec(each, output=False) for each in xmm.inputs),
        tuple(tensor_spec(each, output=True) for each in xmm.outputs),
    )


def _program_facts(program: XmmProgram) -> dict[str, Any]:
    return {
        "name": program.name,
        "offset": program.offset,
        "size": program.size,
        "crc": program.crc,
        "total": program.total,
    }


def _tensor_facts(tensor: XmmTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "type": tensor.type.name,
        "shape": list(tensor.dims),
        "pitches": list(tensor.pitches),
        "offset": tensor.offset,
        "size": tensor.size,
        "scale": tensor.scale,
        "zero_point": tensor.zero_point,
        "quantised": quantisation(tensor) is not None,
    }
