from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from repertory.transports.virtual import virtual_options

TESTS = Path(__file__).parent

BACKENDS = ("asyncio", "trio")

MARKERS = (
    "virtual: the test runs on virtual time, which jumps to the next event; no threads",
    "realtime: the test runs on uvloop too",
    "xdist_group(name): tests of a group run one after the other, in one process",
)

BY_THE_CLOCK = ("isolation/", "rpmsg/vm/test_faults.py", "rpmsg/vm/test_process.py", "memx/test_mxa_waits.py")
"""Where even plain functions wait for threads and processes in real time."""


settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: Ctrl-C is tested too
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real time do not run beside each other: each has a bound, and few have time to spare."""
    for item in items:
        if _is_by_the_clock(item):
            item.add_marker(pytest.mark.xdist_group("clock"))


def _is_by_the_clock(item: pytest.Item) -> bool:
    file = item.path.relative_to(TESTS).as_posix()
    is_real = isinstance(item, pytest.Function) and "anyio_backend" in item.fixturenames
    return (is_real and not item.get_closest_marker("virtual")) or file.startswith(BY_THE_CLOCK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "anyio_backend" in metafunc.fixturenames and not _chosen_by_test(metafunc.definition):
        more = ("uvloop",) if metafunc.definition.get_closest_marker("realtime") else ()
        metafunc.parametrize("anyio_backend", BACKENDS + more, indirect=True)


def _chosen_by_test(definition: pytest.Item) -> bool:
    return any("anyio_backend" in mark.args[0] for mark in definition.iter_markers("parametrize"))


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    name: str = request.param
    if name == "uvloop":
        return "asyncio", {"use_uvloop": True}
    if request.node.get_closest_marker("virtual"):
        return name, virtual_options(name)
    return name, {}
