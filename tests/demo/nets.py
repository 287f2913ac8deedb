from __future__ import annotations

from typing import Any, final

import numpy as np
from onnxruntime import InferenceSession

from repertory.runtime.demo.boxes import Floats
from repertory.runtime.demo.photos import NETWORKS, network


@final
class DirectNets:
    """The three networks on onnxruntime, on the caller's thread; keeps the shape of every request."""

    def __init__(self) -> None:
        self._sessions: dict[str, Any] = {name: InferenceSession(network(name)) for name in NETWORKS}
        self.asked: dict[str, list[tuple[int, ...]]] = {name: [] for name in NETWORKS}

    async def pnet(self, canvas: Floats, /) -> tuple[Floats, Floats]:
        offsets, probabilities = self._run("pnet", canvas)
        return offsets, probabilities

    async def rnet(self, crop: Floats, /) -> tuple[Floats, Floats]:
        offsets, probabilities = self._run("rnet", crop)
        return offsets, probabilities

    async def onet(self, crop: Floats, /) -> tuple[Floats, Floats, Floats]:
        offsets, landmarks, probabilities = self._run("onet", crop)
        return offsets, landmarks, probabilities

    def _run(self, name: str, tensor: Floats) -> list[Any]:
        assert tensor.dtype == np.float32
        assert np.abs(tensor).max() <= 1
        self.asked[name].append(tensor.shape)
        session = self._sessions[name]
        return list(session.run(None, {session.get_inputs()[0].name: np.ascontiguousarray(tensor)}))
