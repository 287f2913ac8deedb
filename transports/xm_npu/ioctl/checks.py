"""What is looked at before any node is opened."""

from __future__ import annotations

from repertory.models.errors import ArtifactError, ConfigError
from repertory.models.npu_code import is_twin_code
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.program import Loadable

from .kernel import Kernel, LinuxKernel

__all__ = ["check_model", "check_process"]

_BITS = 32


def check_process(kernel: Kernel) -> None:
    """Check that this process has the driver's pointers.

    Raises:
        ConfigError: it has not.
    """
    if kernel.bits != _BITS:
        raise ConfigError(
            f"via=ioctl needs a {_BITS}-bit Python, this one has {kernel.bits} bits: sizes and numbers of "
            "the driver's calls are those of a 32-bit process; use via=cl"
        )


def check_model(model: Loadable, kernel: Kernel) -> None:
    """Check that the nodes can run a model.

    Raises:
        NpuRefusal: it has no code, or a dynamic batch or a shared workspace, which are the library's.
        ArtifactError: it was packed for simulated NPUs, and this one is real.
    """
    why = _unfit(model)
    if why is not None:
        raise NpuRefusal(f"{model.name}: {why}", call="SUBMIT_JOB")
    if isinstance(kernel, LinuxKernel) and any(
        is_twin_code(memoryview(model.data)[code.offset :]) for code in model.codes
    ):
        raise ArtifactError(f"{model.name}: packed for simulated NPUs; a real one cannot run it")


def _unfit(model: Loadable) -> str | None:
    if not model.codes or not all(code.size for code in model.codes):
        return "a program without code"
    if model.batch > 1:
        return "a dynamic batch is the library's; the nodes have none"
    if model.reuse:
        return f"memory reuse type {model.reuse}: only the library knows where its tensors lie"
    return None
