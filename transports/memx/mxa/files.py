"""Files that a script names, looked at before libmemx reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from repertory.models.dfp import Dfp
from repertory.models.errors import ArtifactError
from repertory.transports.memx.constants import Status

__all__ = ["verdict"]

_VERSION_6: Final = (6).to_bytes(8, "little")


def verdict(file_path: bytes) -> Status:
    """Look at a file before libmemx, which crashes on some that are truncated, and runs a twin's empty part.

    Returns:
        OK, also for files of other versions than 6, which are left to libmemx; or why not.
    """
    try:
        content = Path(os.fsdecode(file_path)).read_bytes()
    except (OSError, ValueError):
        return Status.DFP_CANNOT_BE_OPENED
    if len(content) > len(_VERSION_6) and not content.startswith(_VERSION_6):
        return Status.OK
    try:
        return Status.DFP_BAD_CONTENT if Dfp.read(content).is_twin else Status.OK
    except ArtifactError:
        return Status.DFP_BAD_CONTENT
