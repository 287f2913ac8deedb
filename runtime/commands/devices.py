"""`repertory devices`: what this machine has."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, final

from repertory.models.errors import RepertoryError
from repertory.transports.families import schemes
from repertory.transports.memx.survey import survey
from repertory.transports.rpmsg.linux.permission import UDEV_RULES
from repertory.transports.rpmsg.linux.survey import survey as survey_dsps
from repertory.transports.xm_npu.survey import survey as survey_npus

from .command import Command, printed

__all__ = ["Devices"]

_MODULES = 'modules cannot be read: pyelftools is missing: pip install "repertory[c7x]"'


@final
class Devices(Command):
    """Show which devices this machine has, family by family, and what is missing for the others.

    Asking for MX3 groups loads the vendor's library, which looks at the device nodes; C7x DSPs are looked
    up in sysfs, and GK7206 NPUs by their nodes in /dev. No device is opened.

    By default only root may use a DSP. To let the group `video` do so:
      repertory devices --udev | sudo tee /etc/udev/rules.d/60-repertory-c7x.rules
    """

    name = "devices"
    summary = "show which devices this machine has"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--library", help="path of libmemx; the loader's search path without it")
        parser.add_argument("--udev", action="store_true", help="print udev rules for C7x DSPs, and no more")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, options: argparse.Namespace) -> None:
        if options.udev:
            print(UDEV_RULES, end="")
            return
        facts: dict[str, Any] = {
            "cpu": _cpu(),
            "memx": _memx(options.library),
            "c7x": _c7x(),
            "xm-npu": _xm_npu(),
            "addresses": [f"{scheme}://" for scheme in schemes()],
        }
        printed(facts, _text(facts), json=options.json)


def _cpu() -> dict[str, Any]:
    try:
        runtime = version("onnxruntime")
    except PackageNotFoundError:
        return {"available": False, "reason": 'onnxruntime is missing: pip install "repertory[onnx]"'}
    return {"available": True, "address": "cpu://", "onnxruntime": runtime, "cores": os.cpu_count()}


def _memx(library: str | None) -> dict[str, Any]:
    try:
        return {"available": True, **survey(library)}
    except RepertoryError as error:
        return {"available": False, "reason": str(error)}


def _c7x() -> dict[str, Any]:
    dsps = survey_dsps()
    if not dsps:
        return {"available": False, "reason": "no remote processor of this machine is a DSP"}
    found = {"available": any(dsp.reason is None for dsp in dsps), "dsps": dsps}
    return {**found, "modules": _MODULES} if find_spec("elftools") is None else found


def _xm_npu() -> dict[str, Any]:
    board = survey_npus()
    if board.reason is not None:
        return {"available": False, "reason": board.reason}
    return {
        "available": any(way.reason is None for way in board.ways),
        "ways": board.ways,
        "memory": board.memory,
        "library": board.library,
    }


def _text(facts: dict[str, Any]) -> Iterator[str]:
    for family in ("cpu", "memx"):
        found = facts[family]
        if not found["available"]:
            yield f"{family}: none: {found['reason']}"
            continue
        details = ", ".join(
            f"{key} {value}" for key, value in found.items() if key not in {"available", "groups"}
        )
        yield f"{family}: {details}"
        for group in found.get("groups", ()):
            yield f"  {group['address']}: {group['chips']} chips"
    yield from _dsp_lines(facts["c7x"])
    yield from _npu_lines(facts["xm-npu"])
    yield f"addresses begin with {', '.join(facts['addresses'])}"


def _dsp_lines(found: dict[str, Any]) -> Iterator[str]:
    if "dsps" not in found:
        yield f"c7x: none: {found['reason']}"
        return
    yield f"c7x: {len(found['dsps'])} DSPs"
    if "modules" in found:
        yield f"  {found['modules']}"
    for dsp in found["dsps"]:
        well = f"{dsp.state}, firmware {dsp.firmware}, memory of {dsp.heap}"
        yield f"  {dsp.address}: {dsp.reason or well}"


def _npu_lines(found: dict[str, Any]) -> Iterator[str]:
    if "ways" not in found:
        yield f"xm-npu: none: {found['reason']}"
        return
    nodes = sorted({way.node for way in found["ways"]})
    yield f"xm-npu: {', '.join(nodes)}"
    for way in found["ways"]:
        yield f"  {way.address}: {way.reason or 'ready'}"
