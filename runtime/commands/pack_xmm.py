"""What `repertory pack --family xm-npu` does."""

from __future__ import annotations

import argparse
from typing import Final

from repertory.models.errors import ConfigError
from repertory.models.model_file import read_file
from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.xmm_tensor import NpuType

from .pack_options import read, refuse_foreign, seconds, shapes

__all__ = ["NPU_FORMATS", "pack_xmm"]

NPU_FORMATS: Final = {
    "u8": NpuType.UINT8,
    "s8": NpuType.INT8,
    "u16": NpuType.UINT16,
    "s16": NpuType.INT16,
    "s32": NpuType.INT32,
    "fp16": NpuType.FP16,
    "fp32": NpuType.FP32,
    "int4": NpuType.INT4,
    "uint10": NpuType.UINT10,
    "uint12": NpuType.UINT12,
}
"""Names of element types."""


def pack_xmm(options: argparse.Namespace) -> bytes:
    """Make an `.xmm` of the one model."""
    refuse_foreign(options, "xm-npu")
    if len(options.model) > 1:
        raise ConfigError(f"{len(options.model)} models came; a file for an NPU holds one")
    (path,) = options.model
    named, for_all = _formats(options.format)
    return pack_xm_npu(
        path.stem,
        read(path),
        shapes=shapes(options.shape),
        formats=named,
        format=for_all,
        latency=seconds("--latency-ms", options.latency_ms),
        work=options.work_bytes or 0,
        reuse=options.reuse or 0,
        private_data=None if options.private_data is None else read_file(options.private_data),
        row_alignment=1 if options.row_alignment is None else options.row_alignment,
    )


def _formats(texts: list[str]) -> tuple[dict[str, Format], Format | None]:
    """Return the formats by tensor, and that of all float32 tensors without one; the last word counts."""
    named: dict[str, Format] = {}
    for_all: Format | None = None
    for text in texts:
        name, separator, value = text.rpartition("=")
        if separator:
            named[name] = _format(text, value)
        else:
            for_all = _format(text, value)
    return named, for_all


def _format(text: str, value: str) -> Format:
    kind, separator, numbers = value.partition(":")
    if kind not in NPU_FORMATS:
        raise ConfigError(f"--format {text}: {kind!r} is none of {', '.join(NPU_FORMATS)}")
    if not separator:
        return Format(NPU_FORMATS[kind])
    scale, separator, zero_point = numbers.partition(":")
    try:
        return Format(NPU_FORMATS[kind], float(scale), int(zero_point) if separator else 0)
    except ValueError as error:
        raise ConfigError(f"--format {text}: TYPE[:SCALE[:ZERO_POINT]] is wanted") from error
