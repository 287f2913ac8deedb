"""Finding and loading the vendor's libraries, and telling the revisions of their interface apart."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from repertory.models.errors import ConfigError

from .library import OPTIONAL
from .signatures import RETURNS, SIGNATURES

__all__ = ["DEFAULT_DIRECTORY", "LIBRARIES", "NODE_HINT", "Functions", "Revision", "load_functions"]

LIBRARIES: Final = ("libxmedia_common.so", "libxmedia_flatcc.so", "libxmedia_npu.so", "libxmedia_cl.so")
"""In the order in which they are loaded; all but the last may be linked into it and missing."""

DEFAULT_DIRECTORY: Final = "/usr/lib"
"""Where they are looked for."""

NODE_HINT: Final = "load the vendor's driver first: `./load xm7206v11a -i`, or `insmod xm_npu.ko`"
"""What helps where a node of the driver is missing."""

Revision: TypeAlias = Literal["C"]
"""Revisions that can be used."""

_NEW_IN_C: Final = (
    "xmedia_cl_set_workspace_addr",
    "xmedia_cl_graph_query_model_info_from_file",
    "xmedia_cl_graph_get_private_data",
    "xmedia_cl_graph_get_private_data_from_file",
)
_loaded: dict[tuple[Path, ...], tuple[ctypes.CDLL, ...]] = {}
_loading = threading.Lock()


@final
class Functions:
    """Functions of loaded libraries, each bound when it is first asked for.

    Args:
        libraries: where they are looked for, in turn: a handle finds only what its own file needs.

    Attributes:
        file: of libxmedia_cl, with all links followed.
        names: of what is exported and known here.
    """

    def __init__(self, libraries: Sequence[ctypes.CDLL]) -> None:
        self.file = Path(libraries[-1]._name)
        self._libraries = libraries
        self._bound: dict[str, Any] = {}
        self.names = frozenset(name for name in SIGNATURES if self._owner(name) is not None)

    def exports(self, name: str) -> bool:
        """Whether there is a function of that name, known here or not."""
        return self._owner(name) is not None

    def __getitem__(self, name: str) -> Any:
        """Return a function that is among `names`, with its types."""
        bound = self._bound.get(name)
        if bound is None:
            owner = self._owner(name)
            if owner is None:
                raise ConfigError(f"this libxmedia_cl does not export {name}")
            bound = owner[name]  # a new object, unlike attribute access: nobody else's types change
            bound.argtypes = SIGNATURES[name]
            bound.restype = RETURNS.get(name, ctypes.c_int32)
            self._bound[name] = bound
        return bound

    def _owner(self, name: str) -> ctypes.CDLL | None:
        return next((library for library in self._libraries if hasattr(library, name)), None)


def load_functions(place: str | Path | None, revision: Revision | None) -> Functions:
    """Load the libraries, once a process, and check their revision.

    Args:
        place: a directory, or the file of libxmedia_cl with the others beside it; None for the default.
        revision: "C" where it is known to be that though it exports nothing which only C has.

    Raises:
        ConfigError: a library is missing, cannot be loaded, is foreign, or of another revision.
    """
    functions = Functions(_libraries(_files(Path(place or DEFAULT_DIRECTORY))))
    _check_revision(functions, revision)
    if missing := sorted(set(SIGNATURES) - OPTIONAL - functions.names):
        raise ConfigError(f"libxmedia_cl lacks {', '.join(missing)}: it is foreign, or of another revision")
    return functions


def _files(place: Path) -> tuple[Path, ...]:
    """Return what there is to load; the last is libxmedia_cl."""
    directory, cl = (place, place / LIBRARIES[-1]) if place.is_dir() else (place.parent, place)
    if not cl.is_file():
        raise ConfigError(
            f"no CL library: looked for {cl} (with {', '.join(LIBRARIES[:-1])} beside it). It comes with the "
            f"vendor's SDK; copy its libraries there, or name their directory"
        )
    others = (directory / name for name in LIBRARIES[:-1])
    return (*(each for each in others if each.is_file()), cl)


def _libraries(files: tuple[Path, ...]) -> tuple[ctypes.CDLL, ...]:
    key = tuple(each.resolve() for each in files)
    with _loading:
        if key not in _loaded:
            _loaded[key] = tuple(_load(each) for each in key)
        return _loaded[key]


def _load(file: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(os.fspath(file), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be loaded: {error}. The vendor's libraries are built for one libc (uclibc or "
            f"musl) and one ABI, and need a Python that is built for the same"
        ) from error


def _check_revision(functions: Functions, revision: Revision | None) -> None:
    """Refuse A, which is told by what it lacks, and B, which is told by what only C is known to have."""
    if functions.exports("xmedia_cl_graph_set_input") or "xmedia_cl_graph_set_inout" not in functions.names:
        raise ConfigError(
            "libxmedia_cl is of revision A of its interface, or foreign: it has no "
            "xmedia_cl_graph_set_inout, or still has xmedia_cl_graph_set_input; revision C is needed"
        )
    if revision is None and not any(name in functions.names for name in _NEW_IN_C):
        raise ConfigError(
            f"libxmedia_cl seems to be of revision B of its interface, whose structures differ: none of "
            f"{', '.join(_NEW_IN_C)} is exported. If it is C all the same, say so: ?revision=C in the address"
        )
