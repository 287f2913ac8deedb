"""The demonstration itself: load three networks, send photographs, remember what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

import anyio

from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.runtime.statistics import Statistics
from repertory.runtime.timeline import Span

from .boxes import Floats
from .cascade import Face, Pixels, find_faces
from .photos import FACES, NETWORKS, photo
from .placement import model_file, placed

__all__ = ["SPANS", "Found", "run"]

SPANS = 100_000
"""Spans that are kept for the timeline."""


@final
@dataclass(slots=True)
class Found:
    """What a run of the demonstration gave.

    Attributes:
        photos: by name.
        faces: by the photo's name, the surest first.
        statistics: of the runtime, at the end.
        spans: what each group did.
    """

    photos: dict[str, Pixels]
    faces: dict[str, list[Face]]
    statistics: Statistics | None = None
    spans: dict[str, list[Span]] = field(default_factory=dict[str, list[Span]])


@final
class _Served:
    """The cascade's three networks as models of a runtime."""

    def __init__(self, models: dict[str, Model]) -> None:
        self._pnet, self._rnet, self._onet = (models[name] for name in NETWORKS)

    async def pnet(self, canvas: Floats, /) -> tuple[Floats, Floats]:
        answer = await self._pnet.infer(canvas)
        return answer["conv2d_4"], answer["softmax"]

    async def rnet(self, crop: Floats, /) -> tuple[Floats, Floats]:
        answer = await self._rnet.infer(crop)
        return answer["dense_2"], answer["softmax_1"]

    async def onet(self, crop: Floats, /) -> tuple[Floats, Floats, Floats]:
        answer = await self._onet.infer(crop)
        return answer["dense_5"], answer["dense_6"], answer["softmax_2"]


async def run(devices: Sequence[str], step: Callable[[], None] = lambda: None) -> Found:
    """Find the faces in all photographs at once.

    Args:
        devices: their addresses.
        step: called when a photograph is done.

    Raises:
        ExceptionGroup: of what the runtime raised.
    """
    found = Found({name: photo(name) for name in FACES}, {})
    async with open_runtime(devices, spans=SPANS) as rt:
        nets = _Served({name: await _load(rt, name, devices) for name in NETWORKS})

        async def look(name: str) -> None:
            found.faces[name] = await find_faces(found.photos[name], nets)
            step()

        async with anyio.create_task_group() as tasks:
            for name in found.photos:
                tasks.start_soon(look, name)
        found.statistics, found.spans = rt.statistics(), rt.timeline()
    return found


async def _load(rt: Runtime, name: str, devices: Sequence[str]) -> Model:
    groups = placed(name, devices)
    return await rt.load(model_file(name, groups[0]), name=name, groups=groups)
