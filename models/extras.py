"""Optional packages, imported where they are first needed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from .errors import ConfigError

__all__ = ["load_elftools", "load_flatbuffers", "load_onnx", "load_onnxruntime"]


@cache
def load_elftools() -> Any:
    """Import the reader of ELF files: pyelftools' module with `ELFFile`.

    Raises:
        ConfigError: it is not installed; says how to.
    """
    return _extra("elftools.elf.elffile", package="pyelftools", extra="c7x")


@cache
def load_flatbuffers() -> Any:
    """Import flatbuffers: its builder, its tables and its number types.

    Raises:
        ConfigError: it is not installed; says how to.
    """
    return _extra("flatbuffers", extra="xm-npu")


@cache
def load_onnx() -> Any:
    """Import onnx with its helpers.

    Raises:
        ConfigError: it is not installed; says how to.
    """
    onnx = _extra("onnx")
    _extra("onnx.shape_inference")
    return onnx


@cache
def load_onnxruntime() -> Any:
    """Import onnxruntime, and stop it from writing to the standard streams.

    Raises:
        ConfigError: it is not installed; says how to.
    """
    onnxruntime = _extra("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def _extra(module: str, *, package: str | None = None, extra: str = "onnx") -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        missing = package or module.partition(".")[0]
        raise ConfigError(f'{missing} is missing: pip install "repertory[{extra}]" ({error})') from error
