from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory.models.sketch import sketch
from repertory.models.spec import TensorSpec
from repertory.runtime.cli import main
from repertory.runtime.demo import photos

X = TensorSpec("x", (4,), np.dtype(np.float32))
Y = TensorSpec("y", (2, 3), np.dtype(np.float32))


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Repertory = Callable[..., Done]


@pytest.fixture
def repertory(capsys: pytest.CaptureFixture[str]) -> Repertory:
    """Run a command in this process."""

    def run(*arguments: object) -> Done:
        texts: Sequence[str] = [str(argument) for argument in arguments]
        try:
            code = main(texts)
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return run


@pytest.fixture
def onnx(tmp_path: Path) -> Callable[[str], Path]:
    """Write one of the demonstration's networks to a file."""

    def write(name: str) -> Path:
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(photos.network(name))
        return path

    return write


@pytest.fixture
def sketched(tmp_path: Path) -> Callable[[str], Path]:
    """Write a sketch with one input and one output to a file."""

    def write(name: str) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_bytes(sketch(name, [X], [Y]))
        return path

    return write
