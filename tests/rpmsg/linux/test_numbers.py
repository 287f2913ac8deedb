"""The kernel's headers, as a C compiler reads them, agree with our numbers and layouts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from struct import Struct

import pytest

from repertory.transports.rpmsg.linux import kernel

_HEADERS = ("rpmsg.h", "dma-heap.h", "dma-buf.h")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    compiler = shutil.which("cc")
    if compiler is None or not all(Path("/usr/include/linux", name).exists() for name in _HEADERS):
        pytest.skip("needs a C compiler and the kernel's headers")
    program = tmp_path_factory.mktemp("numbers") / "numbers"
    subprocess.run([compiler, "-o", program, Path(__file__).with_name("numbers.c")], check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: [int(number) for number in numbers] for name, *numbers in lines}


@pytest.mark.parametrize(
    "name",
    [
        "RPMSG_CREATE_EPT",
        "RPMSG_DESTROY_EPT",
        "DMA_HEAP_ALLOC",
        "DMA_BUF_SYNC",
        "RPROC_DMA_BUF_ATTACH",
        "SYNC_READ",
        "SYNC_WRITE",
        "SYNC_START",
        "SYNC_END",
    ],
)
def test_numbers(name: str, told: dict[str, list[int]]) -> None:
    assert [getattr(kernel, name)] == told[name]


def _offsets(layout: Struct, values: tuple[object, ...]) -> list[int]:
    """Return where each field begins: the first byte that changes with it."""
    blank = [b"" if isinstance(value, bytes) else 0 for value in values]
    found: list[int] = []
    for at, value in enumerate(values):
        changed = layout.pack(*blank[:at], value, *blank[at + 1 :])
        found.append(next(offset for offset, byte in enumerate(changed) if byte))
    return found


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ENDPOINT_INFO", (b"x", 1, 1)),
        ("ALLOCATION", (1, 1, 1, 1)),
        ("SYNC", (1,)),
        ("ATTACHMENT", (1, 1)),
    ],
)
def test_layouts(name: str, values: tuple[object, ...], told: dict[str, list[int]]) -> None:
    layout: Struct = getattr(kernel, name)
    assert [layout.size] == told[f"{name}.size"]
    assert _offsets(layout, values) == told[f"{name}.offsets"]
