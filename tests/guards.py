"""The house rules as functions: each takes the project's root and returns complaints, one line each."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import final

__all__ = [
    "FLOORS",
    "HEAVY",
    "Module",
    "bare_names",
    "broken_links",
    "foreign_clocks",
    "incomplete_all",
    "loaded_by",
    "modules",
    "named_backends",
    "open_classes",
    "prints",
    "unlisted_packages",
    "upward_imports",
]

FLOORS = ("models", "transports", "actors", "runtime")
"""From the ground up: each imports only itself and those before it."""

HEAVY = frozenset(
    {"PIL", "elftools", "flatbuffers", "onnx", "onnxruntime", "rich", "skimage", "trio", "uvloop"}
)
"""What `import repertory` must not load."""

BACKENDS = frozenset({"asyncio", "sniffio", "trio", "uvloop"})
SEAM = ("transports/loop.py", "transports/_asyncio.py", "transports/_trio.py", "transports/virtual.py")
CLOCK = "transports/real.py"
TALKERS = ("runtime/cli", "runtime/commands/")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
EXEMPT_BASES = ("Enum", "Flag", "IntEnum", "IntFlag", "StrEnum")


@final
@dataclass(frozen=True)
class Module:
    """One source file of the package.

    Attributes:
        name: below `repertory`, as in `transports.memx.device`; empty for the package itself.
        file: relative to the root.
    """

    name: str
    file: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """What a relative import of one dot stands for."""
        return self.name if self.file.endswith("__init__.py") else self.name.rpartition(".")[0]

    @cached_property
    def imports(self) -> list[tuple[int, str, str]]:
        """Line, absolute dotted name, and the local name it is bound to, for everything imported."""
        return [found for node in ast.walk(self.tree) for found in self._imported(node)]

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The dotted name behind each imported local name."""
        return {local: dotted for _, dotted, local in self.imports}

    def at(self, line: int, complaint: str) -> str:
        """Word a complaint."""
        return f"{self.file}:{line}: {complaint}"

    def dotted(self, node: ast.expr) -> str:
        """Return the absolute dotted name that an expression spells, or an empty string."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (value := self.dotted(node.value)):
            return f"{value}.{node.attr}"
        return ""

    def _imported(self, node: ast.AST) -> Iterator[tuple[int, str, str]]:
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.partition(".")[0]
                yield node.lineno, name.name if name.asname else top, name.asname or top
        elif isinstance(node, ast.ImportFrom):
            source = self._source(node)
            for name in node.names:
                yield node.lineno, f"{source}.{name.name}", name.asname or name.name

    def _source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        here = ["repertory", *self.package.split(".")] if self.package else ["repertory"]
        above = here[: len(here) - node.level + 1]
        return ".".join([*above, node.module] if node.module else above)


def modules(root: Path) -> list[Module]:
    """Read every module of the package."""
    sources = [(root / floor, floor) for floor in FLOORS] + [(root / "src" / "repertory", "")]
    return [
        _read(root, path, base, prefix) for base, prefix in sources for path in sorted(base.rglob("*.py"))
    ]


def _read(root: Path, path: Path, base: Path, prefix: str) -> Module:
    found = path.stat()
    return _parsed(root, path, base, prefix, (found.st_mtime_ns, found.st_size))


@cache
def _parsed(root: Path, path: Path, base: Path, prefix: str, _state: tuple[int, int]) -> Module:
    """Parse a file once for all rules, as long as it is the same."""
    parts = [prefix, *path.relative_to(base).with_suffix("").parts]
    name = ".".join(part for part in parts if part not in ("", "__init__"))
    return Module(name, path.relative_to(root).as_posix(), ast.parse(path.read_text()))


def unlisted_packages(root: Path) -> list[str]:
    """Compare the packages that go into the wheel with the folders that are packages."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        f"repertory.{module.name}".rstrip(".")
        for module in modules(root)
        if module.file.endswith("__init__.py")
    }
    return [f"pyproject.toml: {name} is no package" for name in sorted(listed - found)] + [
        f"pyproject.toml: {name} is not listed" for name in sorted(found - listed)
    ]


def upward_imports(root: Path) -> list[str]:
    """Find imports of a floor above, of the face from inside, and of a floor under its bare name."""
    return [
        module.at(line, f"imports {dotted}")
        for module in modules(root)
        if module.name
        for line, dotted, _ in module.imports
        if _is_upward(module.name, dotted)
    ]


def _is_upward(importer: str, dotted: str) -> bool:
    top, _, rest = dotted.partition(".")
    if top in FLOORS:
        return True
    floor = rest.partition(".")[0]
    mine = importer.partition(".")[0]
    return top == "repertory" and (floor not in FLOORS or FLOORS.index(floor) > FLOORS.index(mine))


def bare_names(loaded: Iterable[str]) -> list[str]:
    """Find modules that were imported past the package: a second copy of every class in them."""
    return sorted(name for name in loaded if name.partition(".")[0] in FLOORS)


def loaded_by(code: str) -> frozenset[str]:
    """Return the top-level modules that a new interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return frozenset(name.partition(".")[0] for name in done.stdout.split())


def incomplete_all(root: Path) -> list[str]:
    """Find modules without `__all__`, public names that it lacks, and names in it that do not exist.

    A package's `__init__` may be nothing but a docstring; modules and names that begin with an underscore
    are private.
    """
    return [complaint for module in modules(root) for complaint in _all_complaints(module)]


def _all_complaints(module: Module) -> Iterator[str]:
    own_name = module.name.rpartition(".")[2]
    if own_name == "__main__" or all(_is_docstring(node) for node in module.tree.body):
        return
    listed = _listed(module.tree)
    if listed is None:
        yield module.at(1, "has no literal __all__")
        return
    if not own_name.startswith("_"):
        yield from (module.at(1, f"__all__ lacks {name}") for name in sorted(_public(module.tree) - listed))
    yield from (module.at(1, f"__all__ names {name}") for name in sorted(listed - _bound(module.tree)))


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _listed(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _targets(node) == ["__all__"] and node.value:
            try:
                return set(ast.literal_eval(node.value))
            except ValueError:
                return None
    return None


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _definitions(node: ast.stmt) -> list[str]:
    return [node.name] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the module's own statements, also those under an `if` or a `try`."""
    found: list[ast.stmt] = []
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        found.append(node)
        if isinstance(node, ast.If | ast.Try):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            waiting += [child for handler in getattr(node, "handlers", []) for child in handler.body]
    return found


def _public(tree: ast.Module) -> set[str]:
    names = {name for node in _statements(tree) for name in _definitions(node)}
    documented = zip(tree.body, tree.body[1:], strict=False)
    names |= {name for node, after in documented if _is_docstring(after) for name in _targets(node)}
    return {name for name in names if not name.startswith("_")}


def _bound(tree: ast.Module) -> set[str]:
    statements = _statements(tree)
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    return {name for node in statements for name in (*_definitions(node), *_targets(node))} | {
        (name.asname or name.name).partition(".")[0] for node in imports for name in node.names
    }


def open_classes(root: Path) -> list[str]:
    """Find classes that are neither final nor abstract; who leaves a parent's method open is abstract too.

    Enumerations, and exceptions that others derive from, are neither by nature.
    """
    classes = [
        (module, node)
        for module in modules(root)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]
    parents = {base for _, node in classes for base in _bases(node)}
    errors = _exceptions([node for _, node in classes])
    named = {node.name: node for _, node in classes}
    near: dict[str, dict[str, ast.ClassDef]] = {}  # a name means the class of one's own folder, if it has one
    for module, node in classes:
        near.setdefault(module.package, dict(named))[node.name] = node
    return [
        module.at(node.lineno, f"class {node.name} is neither final nor abstract")
        for module, node in classes
        if not (_is_closed(node) or node.name in errors & parents or _left_open(node, near[module.package]))
    ]


def _left_open(node: ast.ClassDef, named: dict[str, ast.ClassDef]) -> set[str]:
    """Return the abstract methods that a class has, its own and those of its parents."""
    inherited = [_left_open(named[base], named) for base in _bases(node) if base in named]
    methods = {method.name: method for method in node.body if isinstance(method, _FUNCTIONS)}
    own = {name for name, method in methods.items() if _marked_abstract(method)}
    return set[str]().union(*inherited) - set(methods) | own


def _bases(node: ast.ClassDef) -> list[str]:
    return [_last_name(base) for base in node.bases]


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _exceptions(classes: list[ast.ClassDef]) -> set[str]:
    found = {name for name, value in vars(builtins).items() if _is_exception(value)}
    while more := {node.name for node in classes if found & set(_bases(node))} - found:
        found |= more
    return found


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_closed(node: ast.ClassDef) -> bool:
    decorators = {_last_name(decorator) for decorator in node.decorator_list}
    return "final" in decorators or bool({"Protocol", *EXEMPT_BASES} & set(_bases(node)))


def _marked_abstract(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_last_name(mark) == "abstractmethod" for mark in method.decorator_list)


def named_backends(root: Path) -> list[str]:
    """Find event loops named outside the one seam: imported, compared with, matched or looked up."""
    return [
        module.at(line, f"names {backend}")
        for module in modules(root)
        if module.file not in SEAM
        for line, backend in _backends(module)
    ]


def _backends(module: Module) -> Iterator[tuple[int, str]]:
    for line, dotted, _ in module.imports:
        if (top := dotted.partition(".")[0]) in BACKENDS:
            yield line, top
    for choice in (choice for node in ast.walk(module.tree) for choice in _choices(node)):
        for part in ast.walk(choice):
            if isinstance(part, ast.Constant) and part.value in BACKENDS:
                yield part.lineno, str(part.value)


def _choices(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.MatchValue):
        return [node.value]
    return [key for key in node.keys if key] if isinstance(node, ast.Dict) else []


def prints(root: Path) -> list[str]:
    """Find `print` outside the command line."""
    return [
        module.at(node.lineno, "prints")
        for module in modules(root)
        if not module.file.startswith(TALKERS)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and node.id == "print"
    ]


def foreign_clocks(root: Path) -> list[str]:
    """Find readings of the machine's clock outside the real world."""
    return [
        module.at(line, f"reads {dotted}")
        for module in modules(root)
        if module.file != CLOCK
        for line, dotted in _named(module)
        if _is_clock(dotted)
    ]


def _named(module: Module) -> Iterator[tuple[int, str]]:
    yield from ((line, dotted) for line, dotted, _ in module.imports)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, module.dotted(node)


def _is_clock(dotted: str) -> bool:
    owner, _, name = dotted.rpartition(".")
    if owner == "time":
        return name.removesuffix("_ns") in {
            "time",
            "monotonic",
            "perf_counter",
            "process_time",
            "thread_time",
        }
    return owner in {"datetime.datetime", "datetime.date"} and name in {"now", "utcnow", "today"}


def broken_links(root: Path) -> list[str]:
    """Find links for the type checkers that do not lead to what they stand for."""
    wanted = {floor: root / floor for floor in FLOORS}
    wanted |= {name: root / "src" / "repertory" / name for name in ("__init__.py", "py.typed")}
    links = root / "typings" / "repertory"
    return [
        f"typings/repertory/{name}: does not lead to {target.relative_to(root)}"
        for name, target in wanted.items()
        if not (
            (links / name).is_symlink() and target.exists() and (links / name).resolve() == target.resolve()
        )
    ]
