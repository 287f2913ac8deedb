"""The child's books: programs as the device here prepared them, and frames where their tensors lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from repertory.models.errors import ArtifactError, DeviceError, RepertoryError
from repertory.models.program import Artifact, Program
from repertory.transports.device import Completion
from repertory.transports.frame import Fate, Frame

from .failures import as_device_error, pack
from .layout import Layout
from .memory import Arena, content
from .messages import Done, Inline, Run, Share, Ship

__all__ = ["Frames", "Programs"]


@final
@dataclass(frozen=True, slots=True)
class _Loaded:
    program: Program
    layouts: tuple[Layout, ...]


@final
class Programs:
    """What was shipped, until it is freed; by key."""

    def __init__(self) -> None:
        self._programs: dict[str, _Loaded | RepertoryError] = {}

    def read(self, ship: Ship, file: int, prepare: Callable[[Artifact], Program]) -> None:
        """Take a file in; what is wrong with it is raised when it is asked for."""
        sizes = (ship.twin, ship.sidecar)
        data, *parts = content(file, ship.size, *(size or 0 for size in sizes))
        given = (None if size is None else part for size, part in zip(sizes, parts, strict=True))
        artifact = Artifact(ship.name, data, ship.network, *given, native_outputs=ship.native_outputs)
        try:
            program = prepare(artifact)
            if program.key != ship.key:
                raise ArtifactError(f"{ship.name} is another program to the device than to who prepared it")
        except RepertoryError as error:
            self._programs[ship.key] = error
        else:
            self._programs[ship.key] = _Loaded(program, tuple(map(Layout, program.networks)))

    def __getitem__(self, key: str) -> _Loaded:
        loaded = self._programs[key]
        if isinstance(loaded, RepertoryError):
            raise loaded
        return loaded

    def known(self, keys: Sequence[str]) -> list[Program]:
        """Return those that the device may hold: the parent may name some of an earlier child."""
        found = map(self._programs.get, keys)
        return [loaded.program for loaded in found if isinstance(loaded, _Loaded)]

    def free(self, keys: Sequence[str]) -> None:
        """Forget programs."""
        for key in keys:
            self._programs.pop(key, None)


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where a frame lies that the parent knows by a number."""

    number: int
    layout: Layout
    arena: Arena
    slot: int


@final
class Frames:
    """Frames on the device. Their callers and deadlines are the parent's: here nobody waits for them."""

    def __init__(self) -> None:
        self._places: dict[Frame, _Place] = {}
        self._numbers: dict[int, Frame] = {}
        self._arena: Arena | None = None

    def settled(self, frame: Frame, /) -> None:
        """Nobody waits."""

    def expire(self, frame: Frame, /) -> None:
        """There are no deadlines."""

    def share(self, share: Share, file: int) -> None:
        """Find later frames in this memory; earlier ones stay where they are."""
        self._arena = Arena(file, share.slot_size)

    def start(self, run: Run, programs: Programs, start: Callable[[Frame], None]) -> None:
        """Make a frame and start it.

        Raises:
            Exception: it was not started.
        """
        loaded, arena = programs[run.program], self._arena
        assert arena is not None, "frames come after their memory"
        layout, network = loaded.layouts[run.network], loaded.program.networks[run.network]
        inputs = tuple(layout.inputs.load(run.inline, arena.memory, run.slot * arena.slot_size))
        frame = Frame(self, network, inputs, program=loaded.program)
        start(frame)
        self._places[frame] = _Place(run.number, layout, arena, run.slot)
        self._numbers[run.number] = frame

    def find(self, number: int) -> Frame | None:
        """Return a frame that is on the device."""
        return self._numbers.get(number)

    def land(self, completion: Completion) -> Done:
        """Bring a frame's outputs to its slot; with other outputs than its network's it is FAILED."""
        place = self._places.pop(completion.frame)
        del self._numbers[place.number]
        fate, error = completion.fate, completion.error
        inline: list[Inline | None] = []
        if fate is Fate.DONE:
            try:
                inline = place.layout.outputs.store(
                    completion.outputs, place.arena.memory, place.slot * place.arena.slot_size
                )
            except ValueError as wrong:
                fate, error = Fate.FAILED, _blame(wrong)
        if completion.release is not None:
            completion.release()
        failure = None if error is None else pack(error)
        return Done(place.number, fate, inline, failure, completion.busy, completion.transfer)


def _blame(wrong: ValueError) -> DeviceError:
    return as_device_error(pack(wrong))
