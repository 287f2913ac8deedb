"""`from repertory import c7x as tvm`: what scripts for the reference take from `tvm`."""

from __future__ import annotations

from . import nd
from .machine import C7xVirtualMachine

__all__ = ["C7xVirtualMachine", "nd"]
