"""`repertory inspect`: what a model file holds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from repertory.models.dfp import Dfp
from repertory.models.elf_header import is_elf
from repertory.models.errors import ArtifactError, ConfigError
from repertory.models.model_file import is_dfp
from repertory.models.onnx_model import read_specs
from repertory.models.program import Artifact
from repertory.models.sketch import read_sketch
from repertory.models.xmm_header import is_xmm

from .command import Command, printed
from .dfp_facts import dfp_facts, dfp_text
from .dynmod_facts import dynmod_facts, dynmod_text, sidecar_of
from .network_facts import plain_facts, plain_text
from .xmm_facts import save_private_data, xmm_facts, xmm_text

__all__ = ["Inspect"]


@final
class Inspect(Command):
    """Show what a model file holds: networks, ports, shapes, formats, and what it was made for.

    Reads DFP files of version 6, modules for a C7x DSP (lib0.out), models for a GK7206 NPU (.xmm, .bin), ONNX
    files and sketches; nothing is run and no device is touched.

    A compiled module does not tell its tensors: a sidecar does, lib0.out.json beside lib0.out. --sidecar
    prints what the module's sidecar is, or one to fill in.
    """

    name = "inspect"
    summary = "show what a model file holds"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="a .dfp, .out, .xmm, .onnx or sketch file")
        parser.add_argument("--sidecar", action="store_true", help="print a module's sidecar, and no more")
        parser.add_argument(
            "--private-data",
            type=Path,
            metavar="FILE",
            help="write an .xmm's private data there, and no more",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, options: argparse.Namespace) -> None:
        artifact = Artifact.read(options.file)
        try:
            if options.sidecar:
                print(_sidecar(options.file, artifact))
                return
            if options.private_data is not None:
                _save_private_data(options.file, artifact, options.private_data)
                return
            facts = _facts(options.file, artifact)
        except ArtifactError as error:
            raise ArtifactError(f"{options.file}: {error}") from error
        printed(facts, _text(facts), json=options.json)


def _sidecar(path: Path, artifact: Artifact) -> str:
    if not is_elf(artifact.data):
        raise ConfigError(f"--sidecar: {path} is no module for a DSP; what else there is tells its tensors")
    return sidecar_of(path, artifact)


def _save_private_data(path: Path, artifact: Artifact, to: Path) -> None:
    if not is_xmm(artifact.data):
        raise ConfigError(f"--private-data: {path} is no model for an NPU (.xmm); nothing else has such data")
    print(f"{to}: {save_private_data(artifact.data, to)} bytes")


def _facts(path: Path, artifact: Artifact) -> dict[str, Any]:
    data = artifact.data
    if is_elf(data):
        return dynmod_facts(str(path), artifact)
    if is_xmm(data):
        return xmm_facts(str(path), data)
    if path.suffix == ".onnx":
        return plain_facts(str(path), "onnx", len(data), read_specs(data, path.stem))
    if data[:1] == b"{":
        return plain_facts(str(path), "sketch", len(data), read_sketch(data)[0])
    if path.suffix == ".dfp" or is_dfp(data):
        return dfp_facts(str(path), len(data), Dfp.read(data))
    raise ArtifactError(f"neither ELF module, DFP, .xmm, ONNX nor sketch ({len(data)} bytes)")


def _text(facts: dict[str, Any]) -> Iterator[str]:
    texts = {"dfp": dfp_text, "dynmod": dynmod_text, "xmm": xmm_text}
    return texts.get(facts["format"], plain_text)(facts)
