"""`repertory run`: serve models from the command line, and see how fast they are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import anyio
import numpy as np

from repertory.models.errors import (
    ConfigError,
    DeadlineExceeded,
    DeadlineUnreachable,
    QueueFull,
    RepertoryError,
    Superseded,
)
from repertory.models.spec import Array
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.runtime.statistics import ModelStatistics, Statistics

from .command import Command, Step, one_error, printed, progress, table
from .interrupt import served

__all__ = ["Run", "statistics_text"]

_NOBODYS_FAULT = (DeadlineExceeded, DeadlineUnreachable, QueueFull, Superseded)


@final
class Run(Command):
    """Open devices, load models, and run each of them COUNT times, CONCURRENCY at once.

    SOURCE is a configuration (.toml) with its devices and models, or model files for the devices that
    --device names. Inputs are random numbers of a fixed seed unless --input gives a .npy file; --save
    writes the last answer of each model to .npy files.

    Requests that are late, refused or superseded are counted, and are no failure unless a model answers
    nothing at all.

    Examples:
      repertory run board.toml --count 1000
      repertory run rnet.dfp onet.dfp --device sim+memx://0 --json
    """

    name = "run"
    summary = "run models on devices and print what happened"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", nargs="+", type=Path, help="a .toml file, or model files")
        parser.add_argument("--device", action="append", help="an address; may be given several times")
        parser.add_argument(
            "--network",
            action="append",
            default=[],
            help="which network of a file; may be given several times",
        )
        parser.add_argument("--count", type=int, default=100, help="requests a model (default 100)")
        parser.add_argument("--concurrency", type=int, default=8, help="requests at once a model (default 8)")
        parser.add_argument("--timeout", type=float, help="seconds that a request may take")
        parser.add_argument(
            "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input by its name"
        )
        parser.add_argument(
            "--save", type=Path, metavar="DIR", help="where the last answers go, as .npy files"
        )
        parser.add_argument("--json", action="store_true", help="print statistics as JSON")

    def run(self, options: argparse.Namespace) -> None:
        if options.count < 1 or options.concurrency < 1:
            raise ConfigError("--count and --concurrency are at least 1")
        if options.timeout is not None and not options.timeout > 0:
            raise ConfigError(f"--timeout {options.timeout}: more than 0 seconds are wanted")
        with one_error():
            statistics = served(self.name, _serve, options)
        printed(statistics, statistics_text(statistics), json=options.json)


async def _serve(options: argparse.Namespace) -> Statistics:
    inputs = dict(_read_input(text) for text in options.input)
    async with _opened(options.source, options.device, options.network) as rt:
        models = await _loaded(rt, options.source, options.network)
        _check_names(inputs, models)
        with progress("requests", options.count * len(models)) as step:
            async with anyio.create_task_group() as tasks:
                for model in models:
                    tasks.start_soon(_load, model, inputs, options, step)
        return rt.statistics()


def _opened(sources: Sequence[Path], devices: list[str] | None, networks: list[str]) -> Runtime:
    if sources[0].suffix == ".toml":
        if len(sources) > 1 or devices or networks:
            raise ConfigError("a .toml file stands alone: it names its devices and models itself")
        return open_runtime(sources[0])
    if not devices:
        raise ConfigError("model files need --device, such as --device sim+memx://0")
    return open_runtime(devices)


async def _loaded(rt: Runtime, sources: Sequence[Path], networks: Sequence[str | None]) -> list[Model]:
    if sources[0].suffix == ".toml":
        return rt.models()
    return [await rt.load(source, network=name) for source in sources for name in networks or [None]]


async def _load(model: Model, inputs: dict[str, Array], options: argparse.Namespace, step: Step) -> None:
    """Put `count` requests on a model, at most `concurrency` at a time."""
    tensors = _tensors(model, inputs)
    answers: list[Any] = []
    refusals: list[RepertoryError] = []
    rest = iter(range(options.count))

    async def caller() -> None:
        for _ in rest:
            try:
                answers[:] = [await model.infer(tensors, timeout=options.timeout)]
            except _NOBODYS_FAULT as error:
                refusals[:] = [error]
                await anyio.lowlevel.checkpoint()
            step()

    async with anyio.create_task_group() as tasks:
        for _ in range(options.concurrency):
            tasks.start_soon(caller)
    if not answers:
        raise refusals[0]
    if options.save is not None:
        _save(model, answers[0], options.save)


def _check_names(inputs: dict[str, Array], models: Sequence[Model]) -> None:
    names = {spec.name for model in models for spec in model.inputs}
    for name in inputs.keys() - names:
        raise ConfigError(f"--input {name}: no model has such an input; there are {', '.join(sorted(names))}")


def _tensors(model: Model, inputs: dict[str, Array]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    tensors: dict[str, Array] = {}
    for spec in model.inputs:
        shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
        noise = rng.integers(0, 256, shape) if spec.dtype.kind in "iu" else rng.standard_normal(shape)
        tensors[spec.name] = inputs.get(spec.name, noise.astype(spec.dtype))
    return tensors


def _save(model: Model, answer: Any, folder: Path) -> None:
    single = isinstance(answer, np.ndarray)
    outputs: dict[str, Array] = {model.outputs[0].name: answer} if single else answer
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in outputs.items():
            np.save(folder / f"{model.name}.{name.replace('/', '_')}.npy", array)
    except OSError as error:
        raise ConfigError(f"--save {folder}: {error.strerror or error}") from error


def _read_input(text: str) -> tuple[str, Array]:
    name, separator, path = text.partition("=")
    if not separator:
        raise ConfigError(f"--input {text}: NAME=FILE.npy is wanted")
    try:
        array: Array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ConfigError(f"--input {text}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"--input {text}: {error}") from error
    return name, array


def statistics_text(statistics: Statistics) -> Iterator[str]:
    """Say statistics to a person."""
    yield from table(
        ("model", "answers", "p50 ms", "p99 ms", "swaps", "failed", "late", "refused"),
        (
            (name, m.answered, _ms(m.p50), _ms(m.p99), m.swaps, m.failed, m.expired, _refused(m))
            for name, m in statistics.models.items()
        ),
    )
    yield ""
    for name, group in statistics.groups.items():
        what = "simulated" if group.simulated else "real"
        yield (
            f"{name} ({what} {group.family}): {group.completed} frames, {group.swaps} swaps in"
            f" {group.swap_seconds:.3f} s, busy {group.busy_seconds:.3f} s"
        )


def _refused(model: ModelStatistics) -> int:
    return sum(model.refused.values()) + model.superseded + model.withdrawn


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.2f}"
