"""Which family `repertory pack` packs for: what --family says, and the name of the file to write."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from repertory.models.errors import ConfigError

__all__ = ["SUFFIXES", "family_of"]

SUFFIXES: Final = {".dfp": "memx", ".out": "c7x", ".xmm": "xm-npu", ".bin": "xm-npu"}
"""How model files are named, and for which family each is."""

_DEFAULT: Final = "memx"
_OTHERS: Final = frozenset({".csv", ".json", ".npy", ".onnx", ".svg", ".toml"})
"""Files of other kinds, which are read or written elsewhere."""


def family_of(chosen: str | None, output: Path) -> str:
    """Return the family: the chosen one, else that of the output's suffix, else memx.

    Raises:
        ConfigError: the suffix is that of another family or of another kind of file.
    """
    suffix = output.suffix.lower()
    named = SUFFIXES.get(suffix)
    if suffix in _OTHERS:
        raise ConfigError(f"-o {output}: {suffix} is no model file's; {', '.join(SUFFIXES)} are packed")
    if chosen is not None and named not in {None, chosen}:
        own = next(each for each, family in SUFFIXES.items() if family == chosen)
        raise ConfigError(f"-o {output}: {suffix} is for the family {named}; what {chosen} has ends in {own}")
    return chosen or named or _DEFAULT
