"""What is to be said of a module for a C7x DSP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repertory.models.dynmod import MACHINE, Dynmod
from repertory.models.dynmod_io import DynmodIo
from repertory.models.program import Artifact
from repertory.models.sidecar import fill_in, write_sidecar

from .network_facts import network_facts, networks_text

__all__ = ["dynmod_facts", "dynmod_text", "sidecar_of"]


def dynmod_facts(path: str, artifact: Artifact) -> dict[str, Any]:
    """Return it for a program; a sidecar that came along is checked against the module."""
    module = Dynmod.read(artifact.data, any_machine=True)
    network = module.described(artifact)
    return {
        "file": path,
        "format": "dynmod",
        "bytes": module.size,
        "soname": module.soname,
        "machine": module.machine,
        "imports": len(module.imports),
        "weight_bytes": module.weights,
        "io": None if module.io is None else _io_facts(module.io),
        "twin": module.twin is not None,
        "simulation_twin": module.is_twin,
        "networks": [] if network is None else [network_facts(network)],
    }


def dynmod_text(facts: dict[str, Any]) -> Iterator[str]:
    """Say it to a person."""
    yield f"{facts['file']}: dynmod, {facts['bytes']} bytes"
    kind = "simulation twin: no hardware runs it" if facts["simulation_twin"] else "compiled"
    added = ", with a twin for simulators" if facts["twin"] and not facts["simulation_twin"] else ""
    yield f"  {facts['soname']}, {_machine(facts['machine'])}; {kind}{added}"
    weights = facts["weight_bytes"]
    told = "no embedded weights" if weights is None else f"{weights} bytes of weights"
    yield f"  {told}; {facts['imports']} imports"
    yield f"  tensors: {_io_text(facts['io'])}"
    yield from networks_text(facts["networks"])
    if not facts["networks"]:
        yield "  no names, shapes and dtypes: a sidecar must tell them (inspect --sidecar)"


def sidecar_of(path: Path, artifact: Artifact) -> str:
    """Return the module's sidecar, or one to fill in with as many tensors as the module tells."""
    module = Dynmod.read(artifact.data, any_machine=True)
    if (network := module.described(artifact)) is not None:
        return write_sidecar(network).decode()
    counts = (module.io.inputs, module.io.outputs) if module.io else (1, 1)
    return fill_in(path.stem, *counts).decode()


def _machine(number: int) -> str:
    return f"machine {number}" if number == MACHINE else f"machine {number} (a C7x is {MACHINE})"


def _io_facts(io: DynmodIo) -> dict[str, Any]:
    return {
        "inputs": io.inputs,
        "outputs": io.outputs,
        "input_bytes": io.input_bytes,
        "output_bytes": io.output_bytes,
        "exact": io.exact,
    }


def _io_text(io: dict[str, Any] | None) -> str:
    if io is None:
        return "it tells none (wire version 2)"
    bound = "" if io["exact"] else "up to "
    return (
        f"inputs {io['inputs']}, {bound}{io['input_bytes']} bytes;"
        f" outputs {io['outputs']}, {bound}{io['output_bytes']} bytes (wire version 3)"
    )
