"""What scripts catch: each error is the package's, and the builtin that the reference raises there."""

from __future__ import annotations

from typing import final

from repertory.models.errors import DeviceError, RepertoryError

__all__ = [
    "ConnectionFailed",
    "ConnectionLost",
    "DspRestarted",
    "InputBusy",
    "InputCountError",
    "InputShapeError",
    "InputTypeError",
    "ModuleNotFound",
    "ModuleRejected",
    "OptionError",
    "RunFailed",
    "RunTimedOut",
    "StagingFull",
    "StaleInput",
    "StaleView",
    "VmClosed",
    "VmError",
]


class VmError(RepertoryError, RuntimeError):
    """The root of what is a RuntimeError in the reference. The cause, if any, is chained.

    Attributes:
        status: what the firmware answered, or None where it did not.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.status: int | None = None

    @classmethod
    def of(cls, error: RepertoryError, doing: str) -> VmError:
        """Word another error of the package; the caller chains it."""
        made = cls(f"{doing}: {error}")
        made.status = error.status if isinstance(error, DeviceError) else None
        return made


@final
class VmClosed(VmError):
    """The caller uses a machine after `close`; or it, or what lies in its memory, in a forked process."""


@final
class StaleView(VmError):
    """The caller reads a result of `run_nocopy` after the next run or after `close`."""


@final
class StaleInput(VmError):
    """The caller uses a tensor of `create_input` whose memory is gone with its connection."""


@final
class StagingFull(VmError):
    """The caller wants more of the memory for inputs than there is. Nothing was sent."""


@final
class InputBusy(VmError):
    """The caller writes to a tensor that the DSP is reading. Nothing was written."""


@final
class InputCountError(VmError):
    """The caller gives no input, more than 128, or not as many as the module takes. Nothing was sent."""


@final
class ModuleRejected(VmError):
    """The module is at fault: it is not for a DSP, too large, or its firmware refused to load it."""


@final
class ConnectionFailed(VmError):
    """There is no such DSP, or somebody else has it, or it does not answer."""


@final
class RunFailed(VmError):
    """The DSP refused the run or failed at it; the machine can be used on."""


@final
class RunTimedOut(VmError):
    """The DSP has not answered in time. The next call waits for it, and connects anew if it is in vain."""


@final
class ConnectionLost(VmError):
    """The endpoint is gone, as when the DSP stops, or its memory failed. The next call connects again."""


@final
class DspRestarted(VmError):
    """The DSP answers and does not know the module any more. The next call connects and loads again."""


@final
class InputShapeError(RepertoryError, ValueError):
    """The caller's shape is at fault: more than 6 extents, an absurd one, or another than is wanted."""


@final
class InputTypeError(RepertoryError, TypeError):
    """The caller's element type is at fault or not the one that is wanted, or the argument is no tensor."""


@final
class OptionError(RepertoryError, ValueError):
    """An argument of the constructor is at fault."""


@final
class ModuleNotFound(RepertoryError, FileNotFoundError):
    """There is no file at the module's path, as was found at the first use."""
