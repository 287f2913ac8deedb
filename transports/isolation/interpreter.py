"""Starting a module of this package in another Python that finds modules where this one does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

from repertory.models.errors import ConfigError

__all__ = ["command", "interpreter"]

_BOOT: Final = """\
import json, runpy, sys
module = sys.argv.pop(1)
sys.path[:] = json.loads(sys.argv.pop(1))
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""

_FLAGS: Final = {"ignore_environment": "-E", "no_user_site": "-s", "no_site": "-S"}
"""What `site` looks at, and whether it runs at all."""


def interpreter() -> str:
    """Return what starts a Python process.

    Raises:
        ConfigError: this program has none: it is frozen, or Python is embedded in it.
    """
    if getattr(sys, "frozen", False) or not os.access(sys.executable or "", os.X_OK):
        raise ConfigError(
            f"a device in a process of its own needs a Python interpreter, and sys.executable is"
            f" {sys.executable!r}: open it without isolation"
        )
    return sys.executable


def command(module: str, *arguments: str) -> list[str]:
    """Return what runs a module as `python -m` does, with the `sys.path` of this process.

    Not by PYTHONPATH: that is in force while the interpreter starts, before the folders of the standard
    library, and its modules would come from folders that this process looks into last.

    Raises:
        ConfigError: there is no interpreter.
    """
    flags = [flag for name, flag in _FLAGS.items() if getattr(sys.flags, name)]
    return [interpreter(), "-P", *flags, "-c", _BOOT, module, json.dumps(_search_path()), *arguments]


def _search_path() -> list[str]:
    """Return the entries of `sys.path` as absolute ones; what is no text is nothing to the import system."""
    found: list[object] = [*sys.path]
    entries = [entry for entry in found if isinstance(entry, str)]
    if _HERE is None:
        return [entry for entry in entries if Path(entry).is_absolute()]
    return [str(_HERE / entry) for entry in entries]


def _here() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None  # it was deleted: nothing can be imported from there


_HERE: Final = _here()
"""What relative entries mean; at once, for a program may go elsewhere before it opens a device."""
