from __future__ import annotations

from typing import final

import anyio
import numpy as np
import pytest
from PIL import Image

from repertory.runtime.demo.boxes import Floats
from repertory.runtime.demo.canvas import CANVAS
from repertory.runtime.demo.cascade import Face, Pixels, find_faces
from repertory.runtime.demo.photos import FACES, photo

from .nets import DirectNets


@pytest.fixture(scope="module")
def sessions() -> DirectNets:
    return DirectNets()


@pytest.fixture
def nets(sessions: DirectNets) -> DirectNets:
    for shapes in sessions.asked.values():
        shapes.clear()
    return sessions


def _contains(face: Face, x: float, y: float) -> bool:
    return face.left < x < face.left + face.width and face.top < y < face.top + face.height


@pytest.mark.parametrize(("name", "count"), FACES.items())
async def test_finds_the_faces_that_are_there(name: str, count: int, nets: DirectNets) -> None:
    faces = await find_faces(photo(name), nets)
    assert len(faces) == count
    assert all(0.95 < face.confidence <= 1 for face in faces)


async def test_every_request_has_its_networks_one_shape(nets: DirectNets) -> None:
    await find_faces(photo("astronaut"), nets)
    assert nets.asked["pnet"] == [(1, CANVAS[1], CANVAS[0], 3)]
    assert set(nets.asked["rnet"]) == {(1, 24, 24, 3)}
    assert set(nets.asked["onet"]) == {(1, 48, 48, 3)}


async def test_astronauts_face_is_where_a_person_sees_it(nets: DirectNets) -> None:
    (face,) = await find_faces(photo("astronaut"), nets)
    left_eye, right_eye, nose, left_mouth, right_mouth = face.landmarks
    assert (face.left, face.top) == pytest.approx((181, 60), abs=15)
    assert (face.width, face.height) == pytest.approx((88, 115), abs=20)
    assert all(_contains(face, *point) for point in face.landmarks)
    assert left_eye[0] < nose[0] < right_eye[0]
    assert left_mouth[0] < right_mouth[0]
    assert max(left_eye[1], right_eye[1]) < nose[1] < min(left_mouth[1], right_mouth[1])


async def test_camera_mans_face_is_where_a_person_sees_it(nets: DirectNets) -> None:
    (face,) = await find_faces(photo("camera"), nets)
    assert _contains(face, 230, 155)
    assert face.width < 100
    assert face.height < 130


async def test_finds_every_face_of_several(nets: DirectNets) -> None:
    one = photo("astronaut")[:, 100:356]
    faces = await find_faces(np.hstack([one, one]), nets)
    assert len(faces) == 2
    assert abs(faces[0].left - faces[1].left) == pytest.approx(256, abs=8)


async def test_large_photo_gives_boxes_in_its_own_pixels(nets: DirectNets) -> None:
    large = np.asarray(Image.fromarray(photo("astronaut")).resize((1536, 1536)))
    (face,) = await find_faces(large, nets)
    assert _contains(face, 3 * 224, 3 * 128)
    assert face.width == pytest.approx(3 * 88, abs=40)


@pytest.mark.parametrize("shape", [(1, 1), (39, 640), (3, 2000), (40, 40)])
async def test_photo_without_room_for_a_face_has_none(shape: tuple[int, int], nets: DirectNets) -> None:
    assert await find_faces(np.zeros((*shape, 3), np.uint8), nets) == []


@final
class WaitingNets:
    """Answers a proposal only once all of its stage are asked."""

    def __init__(self, nets: DirectNets, proposals: int) -> None:
        self._nets = nets
        self._proposals = proposals
        self._all_asked = anyio.Event()
        self.pnet = nets.pnet
        self.onet = nets.onet

    async def rnet(self, crop: Floats, /) -> tuple[Floats, Floats]:
        answer = await self._nets.rnet(crop)
        if len(self._nets.asked["rnet"]) == self._proposals:
            self._all_asked.set()
        await self._all_asked.wait()
        return answer


@pytest.mark.virtual
async def test_all_proposals_of_a_stage_are_asked_at_once(nets: DirectNets) -> None:
    picture: Pixels = photo("astronaut")
    expected = await find_faces(picture, nets)
    count = len(nets.asked["rnet"])
    nets.asked["rnet"].clear()
    with anyio.fail_after(1):
        assert await find_faces(picture, WaitingNets(nets, count)) == expected


async def test_failure_of_a_network_reaches_the_caller(nets: DirectNets) -> None:
    @final
    class Broken:
        pnet, onet = nets.pnet, nets.onet

        async def rnet(self, crop: Floats, /) -> tuple[Floats, Floats]:
            raise RuntimeError("broken")

    with pytest.raises(ExceptionGroup) as caught:
        await find_faces(photo("camera"), Broken())
    assert {str(error) for error in caught.value.exceptions} == {"broken"}
