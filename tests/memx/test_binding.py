"""The ctypes binding against a library of C that notes what arrives."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from repertory.models.errors import ConfigError
from repertory.transports.memx.binding import LIBRARY_NAMES, CtypesLibmemx
from repertory.transports.memx.constants import Status, status_name
from repertory.transports.world import drive

STUB = r"""
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef NO_VERSION
const char *LIB_VER = "libmemx_version: 2.11.2";
#endif
typedef uint32_t memx_status;

static void note(const char *format, ...) {
  va_list args;
  FILE *log = fopen(LOG, "a");
  va_start(args, format);
  vfprintf(log, format, args);
  va_end(args);
  fputc('\n', log);
  fclose(log);
}

__attribute__((constructor)) static void loaded(void) { note("loaded"); }

#define GROUP(name) memx_status name(uint8_t group) { note(#name " %d", group); return 0; }
#define SETTER(name) memx_status name(uint8_t id, int32_t value) \
  { note(#name " %d %d", id, value); return 0x13000024; }
#define SIZE(name) memx_status name(uint8_t id, uint8_t flow, int32_t *h, int32_t *w, int32_t *z, \
  int32_t *c, int32_t *format) \
  { note(#name " %d %d", id, flow); *h = 480; *w = 640; *z = 1; *c = -3; *format = 5; return 0; }

GROUP(memx_trylock)
#ifndef NO_UNLOCK
GROUP(memx_unlock)
#endif
GROUP(memx_close)
SETTER(memx_set_ifmap_queue_size)
SETTER(memx_set_ofmap_queue_size)
SETTER(memx_set_stream_enable)
SETTER(memx_set_stream_disable)
SIZE(memx_get_ifmap_size)
SIZE(memx_get_ofmap_size)

memx_status memx_open(uint8_t id, uint8_t group, float gen) {
  note("memx_open %d %d %g", id, group, gen);
  return 0xF1000003u;
}
#ifdef RECONFIGURE
memx_status memx_reconfigure(uint8_t id, uint8_t group) {
  note("memx_reconfigure %d %d", id, group);
  return 0;
}
#endif
memx_status memx_config_mpu_group(uint8_t group, uint8_t config) {
  note("memx_config_mpu_group %d %d", group, config);
  return 0x14000003;
}
memx_status memx_download_model(uint8_t id, const char *file, uint8_t index, int32_t type) {
  if (type & 0x80) note("memx_download_model %d %d.%d.%d %d %d", id, file[0], file[1], file[2], index, type);
  else note("memx_download_model %d %s %d %d", id, file, index, type);
  return 0x13020000;
}
memx_status memx_stream_ifmap(uint8_t id, uint8_t flow, void *frame, int32_t timeout) {
  note("memx_stream_ifmap %d %d %g %d", id, flow, frame ? ((float *)frame)[2] : -1.0, timeout);
  return frame ? 0 : 0x0A;
}
memx_status memx_stream_ofmap(uint8_t id, uint8_t flow, void *frame, int32_t timeout) {
  note("memx_stream_ofmap %d %d %d", id, flow, timeout);
  if (!frame) return 0x0A;
  ((float *)frame)[1] = 2.5f;
  return 0;
}
memx_status memx_get_total_chip_count(uint8_t group, uint8_t *count) {
  note("memx_get_total_chip_count %d", group);
  *count = 200;
  return 0;
}
memx_status memx_operation_get_device_count(void *count) {
  note("memx_operation_get_device_count");
  *(uint32_t *)count = 0x01020304;
  return 0;
}
"""


class Stub:
    """A compiled library and the calls that it noted."""

    def __init__(self, folder: Path, *defines: str) -> None:
        self.path = str(folder / "libmemx.so")
        self._log = folder / "calls"
        self._log.touch()
        (folder / "stub.c").write_text(STUB)
        options = [f"-D{name}" for name in (*defines, f'LOG="{self._log}"')]
        command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", *options, "-o", self.path, "stub.c"]
        subprocess.run(command, cwd=folder, check=True)

    def calls(self) -> list[str]:
        lines = self._log.read_text().splitlines()
        self._log.write_text("")
        return lines


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., Stub]:
    """Return a maker of stubs, each in a folder of its own."""
    numbers = itertools.count()

    def make(*defines: str) -> Stub:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return Stub(folder, *defines)

    return make


@pytest.fixture
def stub(compiled: Callable[..., Stub]) -> Stub:
    return compiled("RECONFIGURE")


@pytest.fixture
def library(stub: Stub) -> CtypesLibmemx:
    made = CtypesLibmemx(stub.path)
    assert stub.calls() == ["loaded"]
    return made


def test_it_says_what_it_is(library: CtypesLibmemx) -> None:
    assert not library.simulated
    assert library.version == "2.11.2"
    assert library.exports == {"memx_reconfigure"}


def test_groups_and_contexts(library: CtypesLibmemx, stub: Stub) -> None:
    assert drive(library.memx_trylock(127)) == Status.OK
    assert drive(library.memx_unlock(255)) == Status.OK
    assert drive(library.memx_open(31, 3, 31.0)) == 0xF1000003
    assert drive(library.memx_reconfigure(31, 2)) == Status.OK
    assert drive(library.memx_config_mpu_group(3, 7)) == Status.NOT_ENOUGH_CHIPS
    assert drive(library.memx_close(31)) == Status.OK
    assert stub.calls() == [
        "memx_trylock 127",
        "memx_unlock 255",
        "memx_open 31 3 31",
        "memx_reconfigure 31 2",
        "memx_config_mpu_group 3 7",
        "memx_close 31",
    ]


def test_settings(library: CtypesLibmemx, stub: Stub) -> None:
    assert drive(library.memx_set_ifmap_queue_size(1, 1001)) == Status.BAD_QUEUE_SIZE
    assert drive(library.memx_set_ofmap_queue_size(2, -1)) == Status.BAD_QUEUE_SIZE
    drive(library.memx_set_stream_enable(3, 0))
    drive(library.memx_set_stream_disable(4, 1))
    assert stub.calls() == [
        "memx_set_ifmap_queue_size 1 1001",
        "memx_set_ofmap_queue_size 2 -1",
        "memx_set_stream_enable 3 0",
        "memx_set_stream_disable 4 1",
    ]


def test_downloads_pass_a_path_or_the_content_itself(library: CtypesLibmemx, stub: Stub) -> None:
    assert drive(library.memx_download_model(5, b"/a/model.dfp", 1, 3)) == Status.DFP_CANNOT_BE_OPENED
    assert drive(library.memx_download_model(5, b"\x06\x00\x07", 255, 0x83)) == Status.DFP_CANNOT_BE_OPENED
    assert stub.calls() == ["memx_download_model 5 /a/model.dfp 1 3", "memx_download_model 5 6.0.7 255 131"]


def test_what_is_written_through_pointers_comes_back(library: CtypesLibmemx, stub: Stub) -> None:
    assert drive(library.memx_get_ifmap_size(1, 2)) == (0, 480, 640, 1, -3, 5)
    assert drive(library.memx_get_ofmap_size(3, 31)) == (0, 480, 640, 1, -3, 5)
    assert drive(library.memx_get_total_chip_count(6)) == (0, 200)
    assert drive(library.memx_operation_get_device_count()) == (0, 0x01020304)
    assert stub.calls() == [
        "memx_get_ifmap_size 1 2",
        "memx_get_ofmap_size 3 31",
        "memx_get_total_chip_count 6",
        "memx_operation_get_device_count",
    ]


def test_frames_pass_where_they_lie(library: CtypesLibmemx, stub: Stub) -> None:
    frame = np.array([[1.0, 2.0], [7.0, 4.0]], np.float32)
    assert drive(library.memx_stream_ifmap(1, 2, frame, 50)) == Status.OK
    assert drive(library.memx_stream_ofmap(1, 3, frame, -1)) == Status.OK
    assert frame[0, 1] == 2.5
    assert drive(library.memx_stream_ifmap(1, 2, None, 50)) == Status.NULL_POINTER
    assert drive(library.memx_stream_ofmap(1, 2, None, 50)) == Status.NULL_POINTER
    assert stub.calls() == [
        "memx_stream_ifmap 1 2 7 50",
        "memx_stream_ofmap 1 3 -1",
        "memx_stream_ifmap 1 2 -1 50",
        "memx_stream_ofmap 1 2 50",
    ]


def test_memory_that_libmemx_would_spoil_is_refused(library: CtypesLibmemx, stub: Stub) -> None:
    frame = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match="contiguous"):
        drive(library.memx_stream_ifmap(0, 0, frame[:, :2], 1))
    frame.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        drive(library.memx_stream_ofmap(0, 0, frame, 1))
    assert stub.calls() == []


def test_a_library_is_loaded_once(compiled: Callable[..., Stub]) -> None:
    stub = compiled()
    assert stub.calls() == []
    CtypesLibmemx(stub.path)
    CtypesLibmemx(stub.path)
    assert stub.calls() == ["loaded"]


def test_without_reconfigure(compiled: Callable[..., Stub]) -> None:
    library = CtypesLibmemx(compiled().path)
    assert library.exports == frozenset()
    with pytest.raises(ConfigError, match=r"libmemx 2\.11\.2 does not export memx_reconfigure"):
        drive(library.memx_reconfigure(0, 0))


def test_a_library_without_version(compiled: Callable[..., Stub]) -> None:
    assert CtypesLibmemx(compiled("NO_VERSION").path).version == "unknown"


def test_a_required_function_is_missing(compiled: Callable[..., Stub]) -> None:
    with pytest.raises(ConfigError, match=r"libmemx 2\.11\.2 lacks memx_unlock"):
        CtypesLibmemx(compiled("NO_UNLOCK").path)


def test_no_library(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere" / "libmemx.so")
    with pytest.raises(ConfigError, match=r"looked for .*nowhere.*memx-drivers"):
        CtypesLibmemx(path)


def test_the_names_that_are_looked_for() -> None:
    assert LIBRARY_NAMES == ("libmemx.so", "libmemx.so.2")


def test_statuses_have_names() -> None:
    assert status_name(318767133) == "output timeout (0x1300001D)"
    assert status_name(318767138) == "input timeout (queue full) (0x13000022)"
    assert status_name(0) == "ok (0x00000000)"
    assert status_name(0xF1000003) == "unknown status (0xF1000003)"
