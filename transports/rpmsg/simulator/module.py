"""What a loaded module does when it is called: its twin computes, or a hash answers."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, final

import numpy as np

from repertory.models.errors import RepertoryError
from repertory.models.onnx_model import OnnxExecutor, read_specs
from repertory.models.program import Network
from repertory.models.spec import Array, TensorSpec
from repertory.models.twin import TwinNetwork, decode

from .elf import Elf, NotLoadable, read_elf
from .parameters import SimulatedC7x

__all__ = ["CallFailed", "Module", "Shelf"]

_META: Final = Struct("<4I2Q2I")
_META_MAGIC: Final = 0x4D4F4954
_NO_META: Final = (0, 0, 0, 0, 0)
_SHELF_SIZE: Final = 32

Compute = Callable[[Sequence[Array]], Sequence[Array]]


@final
class CallFailed(Exception):
    """The module's entry point returned something else than 0, which is the argument."""


@final
@dataclass(frozen=True, slots=True)
class Module:
    """A module's code, read from its file.

    Attributes:
        digest: of the file.
        data: the file, as it lay in memory when it was loaded.
        network: what it takes and gives; None where nothing in the file tells.
        entry: whether there is a `cg_main_dsp`.
        meta: what a reply of version 3 tells: bytes of inputs and outputs, their counts, and flags.
        seconds: of one run.
        compute: from inputs to outputs; None where nothing in the file computes.
    """

    digest: bytes
    data: bytes
    network: Network | None
    entry: bool
    meta: tuple[int, int, int, int, int]
    seconds: float
    compute: Compute | None

    def call(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Run once.

        Raises:
            CallFailed: these are not its inputs, or its twin fails, which is the cause then.
        """
        if self.compute is None or self.network is None or not _fit(self.network.inputs, inputs):
            raise CallFailed(-1)
        try:
            return self.compute(inputs)
        except Exception as error:  # whatever goes wrong in a module, the firmware goes on
            raise CallFailed(-2) from error


@final
class Shelf:
    """Modules that were read before: reading a twin costs milliseconds, and a swap comes often."""

    def __init__(self, params: SimulatedC7x) -> None:
        self._params = params
        self._read: dict[bytes, Module] = {}

    def module(self, data: bytes) -> Module:
        """Return the module in a file.

        Raises:
            NotLoadable: the DSP's loader refuses the file.
        """
        digest = blake2b(data, digest_size=16).digest()
        module = self._read.pop(digest, None) or _module(digest, data, self._params)
        self._read[digest] = module
        if len(self._read) > _SHELF_SIZE:
            del self._read[next(iter(self._read))]
        return module


def _module(digest: bytes, data: bytes, params: SimulatedC7x) -> Module:
    elf = read_elf(data)
    twin = _twin(elf)
    network = _told(elf) or _computed(twin)
    compute: Compute | None = None
    if params.answers == "hash" and network is not None:
        compute = _Hash(network).answer
    elif twin is not None:
        compute = _Twin(twin).answer
    seconds = params.job_seconds(twin.latency if twin else None)
    return Module(digest, data, network, b"cg_main_dsp" in elf.symbols, _meta(elf), seconds, compute)


def _twin(elf: Elf) -> TwinNetwork | None:
    content = elf.sections.get(b".repertory_twin")
    if content is None:
        return None
    try:
        return decode(content).networks[0]
    except (RepertoryError, IndexError) as error:
        raise NotLoadable(f"its twin cannot be read: {error}") from error


def _told(elf: Elf) -> Network | None:
    """Read the tensors that the module was packed with."""
    content = elf.sections.get(b".repertory_io")
    if content is None:
        return None
    try:
        told: dict[str, Any] = json.loads(content)
        sides = [tuple(_spec(tensor) for tensor in told[side]) for side in ("inputs", "outputs")]
        return Network(str(told["name"]), *sides)
    except (ValueError, KeyError, TypeError) as error:
        raise NotLoadable(f"its tensors cannot be read: {error}") from error


def _computed(twin: TwinNetwork | None) -> Network | None:
    """Return what the twin's graph takes and gives."""
    try:
        return None if twin is None else read_specs(twin.onnx, twin.name)
    except RepertoryError as error:
        raise NotLoadable(f"its twin cannot be read: {error}") from error


def _spec(tensor: dict[str, Any]) -> TensorSpec:
    return TensorSpec(tensor["name"], tuple(int(dim) for dim in tensor["shape"]), np.dtype(tensor["dtype"]))


def _meta(elf: Elf) -> tuple[int, int, int, int, int]:
    symbol = elf.symbols.get(b"_binary_tvm_dsp_io_meta_start")
    record = symbol and elf.at(symbol.value, _META.size)
    if not record:
        return _NO_META
    magic, version, inputs, outputs, input_bytes, output_bytes, flags, _ = _META.unpack(record)
    if (magic, version) != (_META_MAGIC, 1):
        return _NO_META
    return input_bytes, output_bytes, inputs, outputs, flags


def _fit(specs: Sequence[TensorSpec], inputs: Sequence[Array]) -> bool:
    return len(specs) == len(inputs) and all(
        array.dtype == spec.dtype and _same(spec.shape, array.shape)
        for spec, array in zip(specs, inputs, strict=True)
    )


def _same(told: Sequence[int | str], given: Sequence[int]) -> bool:
    return len(told) == len(given) and all(
        isinstance(ours, str) or ours == theirs for ours, theirs in zip(told, given, strict=True)
    )


@final
class _Hash:
    """The same as `hash_answer`, with all that does not depend on the inputs made ready."""

    def __init__(self, network: Network) -> None:
        self._outputs = [_blank(network.name, spec) for spec in network.outputs]

    def answer(self, inputs: Sequence[Array]) -> Sequence[Array]:
        answers: list[Array] = []
        for begun, shape, count, dtype in self._outputs:
            digest = begun.copy()
            for array in inputs:
                digest.update(array.data)
            seed = digest.digest()
            pattern = np.frombuffer(seed * (count // len(seed) + 1), np.uint8, count)
            answers.append(pattern.astype(dtype).reshape(shape))
        return answers


def _blank(name: str, spec: TensorSpec) -> tuple[blake2b, list[int], int, np.dtype[Any]]:
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
    return blake2b(f"{name}/{spec.name}".encode(), digest_size=16), shape, math.prod(shape), spec.dtype


@final
class _Twin:
    """An executor that is made at the first run: many modules are loaded and never called."""

    def __init__(self, twin: TwinNetwork) -> None:
        self._twin = twin
        self._lock = threading.Lock()
        self._executor: OnnxExecutor | None = None

    def answer(self, inputs: Sequence[Array]) -> Sequence[Array]:
        with self._lock:
            executor = self._executor = self._executor or OnnxExecutor(self._twin.onnx, name=self._twin.name)
            graph = executor.network
            named = dict(zip(self._twin.inputs, inputs, strict=True))
            outputs = executor.run([named[spec.name] for spec in graph.inputs])
            by_name = dict(zip((spec.name for spec in graph.outputs), outputs, strict=True))
            return [by_name[name] for name in self._twin.outputs]
