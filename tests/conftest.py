from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from repertory.transports.virtual import virtual_options

BACKENDS = ("asyncio", "trio")

MARKERS = (
    "virtual: the test runs on virtual time, which jumps to the next event; no threads",
    "realtime: the test runs on uvloop too",
)


settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


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
