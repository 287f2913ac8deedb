"""The house rules hold, and each rule can be seen to fail."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from . import guards

ROOT = Path(__file__).parents[1]
Guard = Callable[[Path], list[str]]

GUARDS: tuple[Guard, ...] = (
    guards.unlisted_packages,
    guards.upward_imports,
    guards.incomplete_all,
    guards.open_classes,
    guards.named_backends,
    guards.prints,
    guards.foreign_clocks,
    guards.broken_links,
)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_rule_holds(guard: Guard) -> None:
    assert guard(ROOT) == []


def test_the_rules_see_the_whole_package() -> None:
    floors = {module.name.partition(".")[0] for module in guards.modules(ROOT)}
    assert floors == {"", *guards.FLOORS}


def test_nothing_is_imported_under_a_bare_name() -> None:
    for module in guards.modules(ROOT):
        if not module.name.endswith("__main__"):
            import_module(f"repertory.{module.name}".rstrip("."))
    assert guards.bare_names(sys.modules) == []


def test_importing_the_package_is_light() -> None:
    loaded = guards.loaded_by("import repertory")
    assert "repertory" in loaded
    assert loaded & guards.HEAVY == set()


def test_bare_names_are_noticed() -> None:
    assert guards.bare_names(["runtime.demo", "repertory.models", "models", "modelsets"]) == [
        "models",
        "runtime.demo",
    ]


def test_a_heavy_import_is_noticed() -> None:
    assert guards.loaded_by("import rich") & guards.HEAVY == {"rich"}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Build an empty house that keeps every rule."""
    packages = ["repertory", *(f"repertory.{floor}" for floor in guards.FLOORS)]
    (tmp_path / "pyproject.toml").write_text(f"[tool.setuptools]\npackages = {packages}\n")
    for folder in ("src/repertory", *guards.FLOORS):
        _write(tmp_path, f"{folder}/__init__.py", '"""A floor."""')
    _write(tmp_path, "src/repertory/py.typed", "")
    links = tmp_path / "typings" / "repertory"
    links.mkdir(parents=True)
    for floor in guards.FLOORS:
        (links / floor).symlink_to(f"../../{floor}")
    for name in ("__init__.py", "py.typed"):
        (links / name).symlink_to(f"../../src/repertory/{name}")
    return tmp_path


def _write(root: Path, file: str, source: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


BAD: dict[Guard, list[tuple[str, str, str]]] = {
    guards.unlisted_packages: [
        ("models/onnx/__init__.py", "", "repertory.models.onnx is not listed"),
    ],
    guards.upward_imports: [
        ("models/a.py", "from repertory.actors import box", "imports repertory.actors.box"),
        ("models/a.py", "from repertory import runtime", "imports repertory.runtime"),
        ("models/a.py", "from ..actors.box import Box", "imports repertory.actors.box.Box"),
        ("models/onnx/a.py", "from ...runtime import cli", "imports repertory.runtime.cli"),
        ("transports/a.py", "def f():\n  import repertory.actors.a as x", ":2: imports repertory.actors.a"),
        ("runtime/a.py", "from repertory import open_runtime", "imports repertory.open_runtime"),
        ("runtime/a.py", "import models.spec", "imports models"),
    ],
    guards.incomplete_all: [
        ("models/a.py", "import math", "has no literal __all__"),
        ("models/a.py", "__all__ = sorted(globals())", "has no literal __all__"),
        ("models/a.py", "__all__ = []\ndef f(): ...", "__all__ lacks f"),
        ("models/a.py", "__all__ = []\nasync def f(): ...", "__all__ lacks f"),
        ("models/a.py", "__all__ = []\nif 1:\n  class A: ...", "__all__ lacks A"),
        ("models/a.py", "__all__ = []\nN: int = 1\n'Documented.'", "__all__ lacks N"),
        ("models/a.py", "__all__ = ['gone']", "__all__ names gone"),
    ],
    guards.open_classes: [
        ("models/a.py", "class A: ...", "class A is neither final nor abstract"),
        ("models/a.py", "class A(ABC):\n  def f(self): ...", "class A is neither final nor abstract"),
        ("models/a.py", "class A(msgspec.Struct): ...", "class A is neither final nor abstract"),
        (
            "models/a.py",
            "class A(ABC):\n  @abstractmethod\n  def f(self): ...\nclass B(A):\n  def f(self): ...",
            ":4: class B is neither final nor abstract",
        ),
        (
            "models/a.py",
            "class A(Exception): ...\nclass B(A): ...",
            ":2: class B is neither final nor abstract",
        ),
        ("models/a.py", "def f():\n  class A: ...", ":2: class A is neither final nor abstract"),
    ],
    guards.named_backends: [
        ("actors/a.py", "import trio.lowlevel", "names trio"),
        ("actors/a.py", "from asyncio import Future", "names asyncio"),
        ("actors/a.py", "if name == 'trio': pass", "names trio"),
        ("actors/a.py", "if name in ('uvloop', None): pass", "names uvloop"),
        ("actors/a.py", "match name:\n  case 'trio': pass", ":2: names trio"),
        ("actors/a.py", "make = {'asyncio': f}[name]", "names asyncio"),
    ],
    guards.prints: [
        ("actors/a.py", "print('x')", "prints"),
        ("runtime/a.py", "show = print", "prints"),
    ],
    guards.foreign_clocks: [
        ("actors/a.py", "import time\nnow = time.monotonic", ":2: reads time.monotonic"),
        ("actors/a.py", "import time as t\nt.perf_counter_ns()", "reads time.perf_counter_ns"),
        ("actors/a.py", "from time import time", "reads time.time"),
        ("actors/a.py", "import datetime as d\nd.datetime.now()", "reads datetime.datetime.now"),
        ("actors/a.py", "from datetime import date\ndate.today()", "reads datetime.date.today"),
    ],
}
BREACHES = [(guard, *breach) for guard, breaches in BAD.items() for breach in breaches]


@pytest.mark.parametrize(("guard", "file", "source", "complaint"), BREACHES)
def test_breach_is_noticed(guard: Guard, file: str, source: str, complaint: str, house: Path) -> None:
    _write(house, file, source)
    (found,) = guard(house)
    assert found.endswith(complaint)


def test_missing_package_is_noticed(house: Path) -> None:
    (house / "actors" / "__init__.py").unlink()
    assert guards.unlisted_packages(house) == ["pyproject.toml: repertory.actors is no package"]


def test_broken_links_are_noticed(house: Path) -> None:
    links = house / "typings" / "repertory"
    (links / "models").unlink()
    (links / "actors").unlink()
    (links / "actors").symlink_to("../../runtime")
    (links / "py.typed").unlink()
    (links / "py.typed").write_text("a copy")
    complaints = guards.broken_links(house)
    assert [complaint.partition(":")[0] for complaint in complaints] == [
        "typings/repertory/models",
        "typings/repertory/actors",
        "typings/repertory/py.typed",
    ]


GOOD = {
    "models/errors.py": """
        '''Neither `if trio` nor print() in a docstring counts.'''
        import abc
        from enum import Enum
        from typing import TYPE_CHECKING, Protocol, final
        if TYPE_CHECKING:
            from .spec import Spec
        __all__ = ["LIMIT", "Base", "Colour", "Failure", "Leaf", "Part", "Seam", "Spec", "Told"]
        LIMIT = 3
        '''Documented.'''
        T = "an undocumented constant is the module's own"
        class Failure(Exception): ...
        @final
        class Leaf(Failure): ...
        class Base(abc.ABC):
            @abc.abstractmethod
            def f(self): ...
        class Part(Base):
            '''It leaves `f` open.'''
        class Seam(Protocol[T]): ...
        class Colour(Enum): ...
        @final
        class Told: ...
        def _private(): ...
        """,
    "transports/_private.py": """
        import time
        from repertory.models.errors import Base
        from . import frame
        from .frame import Frame
        __all__: list[str] = []
        def known_by_its_importer(): ...
        time.sleep(0)
        {"backend": "trio"}
        """,
    "transports/real.py": """
        import time
        __all__ = []
        time.monotonic()
        """,
    "transports/virtual.py": """
        __all__ = []
        if backend == "trio":
            import trio
        """,
    "runtime/cli_bench.py": """
        __all__ = []
        print()
        """,
    "runtime/demo.py": "__all__ = []",
    "runtime/__main__.py": "from .cli_bench import main",
    "src/repertory/__init__.py": """
        from repertory.runtime.cli_bench import main
        __all__ = ["main"]
        """,
}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_good_source_passes(guard: Guard, house: Path) -> None:
    for file, source in GOOD.items():
        _write(house, file, textwrap.dedent(source))
    assert guard(house) == []
