"""`C7xVirtualMachine`: a module on a DSP, behind the calls that scripts for the reference make."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar, final

import numpy.typing as npt

from repertory.models.errors import (
    ArtifactError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    RepertoryError,
)
from repertory.models.spec import Array
from repertory.transports.rpmsg.errors import DspRefusal
from repertory.transports.world import drive

from .connect import Source, Target, target
from .connection import Connection
from .errors import (
    ConnectionFailed,
    ConnectionLost,
    DspRestarted,
    InputTypeError,
    ModuleNotFound,
    ModuleRejected,
    RunFailed,
    RunTimedOut,
    VmClosed,
    VmError,
)
from .inputs import as_array, check_count, checked_shape, described, element_type
from .module_file import ModuleFile
from .nd import HostArray, NDArray
from .options import bytes_option, path_option, seconds_option, source_option
from .staging import Input, StagedInput
from .views import Lease

__all__ = ["RUN_TIMEOUT", "SO_PATH", "C7xVirtualMachine"]

RUN_TIMEOUT: Final = 600.0
"""Seconds that a run may take, as in the reference."""

SO_PATH: Final = "libc7x_arm_runtime.so"
"""Default of an argument that means nothing here."""

_LAST_WAIT: Final = 2.0  # seconds for another thread's run when the process ends

T = TypeVar("T")

_log = logging.getLogger("repertory.c7x")


@final
class C7xVirtualMachine:
    """A module on a DSP; connects and loads at the first call.

    Calls may come from several threads, and run one after the other. Every error is a `RepertoryError`, and
    of the builtin that scripts catch: see `vm/errors.py`. What differs from the reference is in
    docs/c7x_vm.md.

    Args:
        module_path: the module (`lib0.out`), looked for at the first use.
        so_path: taken and not used: this package speaks to the DSP itself.
        address: `c7x://7e000000.dsp`, `sim+c7x://`; without one that in `REPERTORY_C7X`, else the first C7x.
            A callable gives the lowest interface itself.
        sidecar: JSON that tells the module's tensors; without one the file `MODULE_PATH.json`, if it exists.
        input_bytes: memory for inputs; without it enough for the module, and 16 MiB where that is not known.
        output_bytes: memory for results; without it what the module tells, else all there is (14 MiB with
            wire version 3).
        timeout: seconds that a run may take.
        reopen: whether a call after `close` connects again, as in the reference, instead of raising.

    Attributes:
        copied_inputs: inputs of all runs so far that were copied into the DSP's memory.
        staged_inputs: those that lay there already.

    Raises:
        OptionError: an argument is out of range, or of no such type.
    """

    def __init__(
        self,
        module_path: str | os.PathLike[str],
        so_path: str | os.PathLike[str] = SO_PATH,
        *,
        address: Source | None = None,
        sidecar: str | os.PathLike[str] | None = None,
        input_bytes: int | None = None,
        output_bytes: int | None = None,
        timeout: float = RUN_TIMEOUT,
        reopen: bool = False,
    ) -> None:
        self._path = path_option("module_path", module_path)
        if path_option("so_path", so_path) != Path(SO_PATH):
            _say_unused()
        self._sidecar = None if sidecar is None else path_option("sidecar", sidecar)
        self._sizes = (bytes_option("input_bytes", input_bytes), bytes_option("output_bytes", output_bytes))
        self._timeout = seconds_option("timeout", timeout)
        self._address = source_option(address)
        self.copied_inputs = 0
        self.staged_inputs = 0
        self._reopen = reopen
        self._closed = False
        self._cycles = 0
        self._lease = Lease()
        self._connection: Connection | None = None
        self._target: Target | None = None
        self._lock = threading.RLock()
        self._inside = False
        self._process = os.getpid()

    @property
    def last_cycles(self) -> int:
        """Ticks of the DSP's counter that the last successful run took; 0 before it."""
        return self._cycles

    @property
    def is_loaded(self) -> bool:
        """Whether the module is loaded, as far as this process knows."""
        return self._connection is not None

    def __getitem__(self, name: object) -> Callable[..., Any]:
        """Return the module's function, whatever the name: a module has one. No I/O.

        Called with 1 to 128 tensors it returns an `NDArray` with memory of its own, or a list of them where
        the module has not exactly one output.

        Raises:
            InputTypeError: the name is no string; or, when it is called, an input is no tensor of numbers.
            VmError: when it is called; see there.
        """
        if not isinstance(name, str):
            raise InputTypeError(f"{name!r} is no function's name")
        return self._call

    def run_nocopy(self, *inputs: Any) -> Any:
        """Run, and return views of the memory for results: valid until the next run of any kind.

        One `ResultView`, or a list of them where the module has not exactly one output.

        Raises:
            VmError: see there.
            InputTypeError, InputShapeError: an input is at fault; nothing was sent.
            ModuleNotFound: there is no such file.
        """
        ready = _checked(inputs)
        with self._turn():
            outputs = self._run(ready)
            lease = self._lease = Lease()
            return _one_or_all(lease.view(output) for output in outputs)

    def create_input(self, shape: int | Iterable[int], dtype: npt.DTypeLike = "float32") -> StagedInput:
        """Return a tensor of zeros in the memory that the DSP reads: as an input it is not copied.

        Valid until `close`, and until the DSP is connected to again.

        Raises:
            StagingFull: there are 128 already, or no memory is left.
            InputTypeError, InputShapeError: the DSP takes no such tensor.
            VmError: see there.
        """
        extents, element = checked_shape(shape), element_type(dtype)
        with self._turn():
            return self._connected().staging.create(extents, element)

    def close(self) -> None:
        """Unload and disconnect, after the run of another thread, if there is one. Any number of times."""
        self._end(-1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if self._connection is not None:
                self.close()

    def __repr__(self) -> str:
        state = "loaded" if self.is_loaded else "closed" if self._closed else "not loaded"
        return f"<C7xVirtualMachine {self._path} {state}>"

    def _call(self, *inputs: Any) -> NDArray | list[NDArray]:
        ready = _checked(inputs)
        with self._turn():
            return _one_or_all(HostArray(output.copy()) for output in self._run(ready))

    def _run(self, inputs: list[Input]) -> list[Array]:
        connection = self._connected()
        connection.check(inputs)
        with self._reported(inputs):
            self._lease.end("the next run has overwritten it")
            outputs = drive(connection.run(inputs, timeout=self._timeout))
        copied = sum(connection.staging.copied(tensor) is not None for tensor in inputs)
        self.copied_inputs += copied
        self.staged_inputs += len(inputs) - copied
        self._cycles = connection.cycles
        return outputs

    def _connected(self) -> Connection:
        """Return a connection on which nothing is owed."""
        if self._closed and not self._reopen:
            raise VmClosed("this machine is closed; make another, or give reopen=True")
        if self._connection is not None and self._connection.owed:
            try:
                drive(self._connection.settle())
            except DeviceError as error:
                self._drop(f"the connection was given up: {error}")
        if self._connection is None:
            self._connection = self._opened()
            self._closed = False
            _open.add(self)
        return self._connection

    def _opened(self) -> Connection:
        look = weakref.WeakMethod(self._look_whether_it_ended)
        try:
            to = self._target = self._target or target(self._address)
            read = functools.partial(ModuleFile.read, self._path, self._sidecar, any_machine=to.any_machine)
            return drive(
                Connection.open(
                    to,
                    lambda simulated: read(simulated=simulated),
                    sizes=self._sizes,
                    on_busy=lambda: _call_if_alive(look),
                )
            )
        except (ArtifactError, DspRefusal) as error:
            raise ModuleRejected.of(error, f"{self._path}") from error
        except (VmError, ModuleNotFound):
            raise
        except RepertoryError as error:
            raise ConnectionFailed.of(error, "cannot connect to the DSP") from error

    @contextmanager
    def _reported(self, inputs: Sequence[Input]) -> Generator[None]:
        """Word what a run ended with for the script, and drop what is of no use any more."""
        try:
            yield
        except DspRestarted as error:
            self._drop(str(error))
            raise
        except VmError:
            raise
        except DeviceHung as error:
            raise RunTimedOut.of(error, "the run did not end") from error
        except DeviceLost as error:
            self._drop(f"the connection was lost: {error}")
            raise ConnectionLost.of(
                error, "the connection was lost, and the next call connects again"
            ) from error
        except DspRefusal as error:
            raise RunFailed.of(error, f"the run of {described(inputs)} failed") from error
        except DeviceError as error:
            raise RunFailed.of(error, "the run failed") from error

    @contextmanager
    def _turn(self, wait: float = -1) -> Generator[None]:
        """Let one thread in at a time."""
        if os.getpid() != self._process:
            raise VmClosed("this machine is another process's: a fork cannot use its connection")
        if not self._lock.acquire(timeout=wait):
            raise RunTimedOut("the run of another thread has not ended")
        try:
            if self._inside:
                raise VmError("a call from inside another call of the same thread")
            self._inside = True
            try:
                yield
            finally:
                self._inside = False
        finally:
            self._lock.release()

    def _end(self, wait: float) -> None:
        if os.getpid() != self._process:
            return  # a fork ends nothing of its parent's
        with self._turn(wait):
            self._closed = True
            if self._connection is not None:
                try:
                    with contextlib.suppress(RepertoryError):
                        drive(self._connection.leave())
                finally:
                    self._drop("the machine was closed")

    def _drop(self, why: str) -> None:
        connection, self._connection = self._connection, None
        self._lease.end(why)
        _open.discard(self)
        if connection is not None:
            connection.close(why)

    def _look_whether_it_ended(self) -> None:
        """Settle what an interrupted run owes, if no thread is in a call."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._connection is not None and not self._inside:
                with contextlib.suppress(DeviceError):
                    drive(self._connection.settle())
        finally:
            self._lock.release()


_open: Final[weakref.WeakSet[C7xVirtualMachine]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Unload what scripts have left loaded: the firmware has four slots, and keeps them until it restarts."""
    for machine in list(_open):
        with contextlib.suppress(RepertoryError):
            C7xVirtualMachine._end(machine, _LAST_WAIT)  # pyright: ignore[reportPrivateUsage]


def _call_if_alive(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (alive := method()) is not None:
        alive()


@functools.cache
def _say_unused() -> None:
    _log.info("so_path is not used: repertory speaks to the DSP itself, without libc7x_arm_runtime.so")


def _checked(inputs: tuple[Any, ...]) -> list[Input]:
    """Return inputs that the wire can carry.

    Raises:
        InputCountError, InputTypeError, InputShapeError: one is at fault.
    """
    check_count(len(inputs))
    return [value if isinstance(value, StagedInput) else as_array(value) for value in inputs]


def _one_or_all(outputs: Iterable[T]) -> T | list[T]:
    every = list(outputs)
    return every[0] if len(every) == 1 else every
