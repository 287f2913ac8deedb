"""What only a process of its own shows: memory, forks, the end, and what an import loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from repertory.transports.rpmsg.vm.connect import ADDRESS

from .support import affine, slow, write

QUICK = "latency_ms=0&load_ms=0"


def run(code: str, path: Path, address: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, path],
        env={**os.environ, ADDRESS: address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.splitlines()


BARE = """
import gc, sys
import numpy as np
from repertory import C7xVirtualMachine

x = np.arange(4, dtype=np.float32).reshape(1, 4)
held = []
for more in ("", "", "&wire=3", "&coherent=false", "&coherent=false", "&first_fit=false&coherent=false"):
    vm = C7xVirtualMachine(sys.argv[1], address="sim+c7x://?latency_ms=0&load_ms=0" + more)
    staged = vm.create_input((1, 4), "float32").copyfrom(x)
    view = vm.run_nocopy(staged)
    bare = np.asarray(view, copy=False)
    held += [bare, bare[0], np.from_dlpack(view, copy=False), np.from_dlpack(view)]
    assert np.array_equal(bare, 2 * x)
    vm.close()
    del vm, staged, view
    gc.collect()
    print(sum(float(array.sum()) for array in held) > -1)
for array in held:
    array.tobytes()
"""


def test_bare_memory_is_never_unmapped_while_it_is_held(tmp_path: Path) -> None:
    assert run(BARE, write(tmp_path, affine()), "") == ["True"] * 6


LEFT = """
import atexit, sys
import numpy as np

atexit.register(lambda: print(dsp.firmware.loaded, dsp.leaks, dsp.firmware.faults))  # the last of all
from repertory import C7xVirtualMachine
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp

dsp = SimulatedDsp()
vm = C7xVirtualMachine(sys.argv[1], address=lambda: dsp)
vm["main"](np.zeros((1, 4), np.float32))
print(dsp.firmware.loaded)
"""


def test_what_a_script_leaves_open_is_unloaded_at_its_end(tmp_path: Path) -> None:
    assert run(LEFT, write(tmp_path, affine()), "") == ["[1]", "[] [] []"]


FORK = """
import os, sys
import numpy as np
from repertory import C7xVirtualMachine
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.vm.errors import VmClosed

dsp = SimulatedDsp()
vm = C7xVirtualMachine(sys.argv[1], address=lambda: dsp)
x = np.ones((1, 4), np.float32)
vm["main"](x)
child = os.fork()
if not child:
    try:
        vm["main"](x)
    except VmClosed:
        vm.close()
        del vm
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(vm["main"](x).numpy().tolist(), dsp.firmware.loaded)
"""


def test_a_fork_cannot_use_it(tmp_path: Path) -> None:
    assert run(FORK, write(tmp_path, affine()), "") == ["7", "[[2.0, 2.0, 2.0, 2.0]] [1]"]


INHERITED = """
import os, sys
import numpy as np
from repertory import C7xVirtualMachine
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp

dsp = SimulatedDsp()
vm = C7xVirtualMachine(sys.argv[1], address=lambda: dsp)
x = np.ones((1, 4), np.float32)
staged = vm.create_input((1, 4)).copyfrom(x)
view = vm.run_nocopy(staged)
row, total = view[0], view.sum
uses = [
    lambda: staged.copyfrom(9 * x), lambda: staged.__setitem__(..., 9 * x), staged.numpy, lambda: staged[0],
    lambda: np.asarray(staged), lambda: np.from_dlpack(staged), view.numpy, row.numpy, total,
    lambda: view + 1, lambda: np.asarray(view), lambda: np.asarray(view, copy=False),
    lambda: vm["main"](x), lambda: vm.run_nocopy(staged), lambda: vm.create_input((1,)),
    lambda: C7xVirtualMachine(sys.argv[1], address=lambda: dsp)["main"](x),
]
if not (child := os.fork()):
    for use in uses:
        try:
            print("done", use())
        except Exception as error:
            print(type(error).__name__, "process" in str(error))
    print(view.stale, repr(view), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(staged.numpy().tolist(), view.tolist(), vm["main"](staged).numpy().tolist())
vm.close()
"""


def test_a_fork_cannot_use_what_lies_in_the_memory(tmp_path: Path) -> None:
    *uses, other, gone, parent = run(INHERITED, write(tmp_path, affine()), "")
    assert uses == ["VmClosed True"] * 15
    assert other == "ConnectionFailed True"
    assert gone == "True <a result that is gone>"
    assert parent == "[[1.0, 1.0, 1.0, 1.0]] [[2.0, 2.0, 2.0, 2.0]] [[2.0, 2.0, 2.0, 2.0]]"


OWN = """
import os, sys
import numpy as np
from repertory import C7xVirtualMachine

x = np.ones((1, 4), np.float32)
go, ready = os.pipe(), os.pipe()
with C7xVirtualMachine(sys.argv[1]) as vm:
    vm["main"](x)
    if not (child := os.fork()):
        with C7xVirtualMachine(sys.argv[1]) as own:
            staged = own.create_input((1, 4)).copyfrom(x)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            print(own["main"](staged).numpy().tolist(), staged.numpy().tolist(), flush=True)
        os._exit(0)
    os.close(ready[1])
    os.read(ready[0], 1)
    staged = vm.create_input((1, 4)).copyfrom(5 * x)
    vm["main"](staged)
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    print(vm["main"](staged).numpy().tolist())
"""


def test_a_fork_has_a_simulated_dsp_of_its_own(tmp_path: Path) -> None:
    told = run(OWN, write(tmp_path, affine()), f"sim+c7x://?{QUICK}")
    assert told == ["[[2.0, 2.0, 2.0, 2.0]] [[1.0, 1.0, 1.0, 1.0]]", "[[10.0, 10.0, 10.0, 10.0]]"]


LAZY = """
import sys, repertory
import numpy as np
assert not any("rpmsg" in name for name in sys.modules)
from repertory import C7xVirtualMachine, c7x as tvm
assert tvm.C7xVirtualMachine is C7xVirtualMachine
assert not {"onnx", "onnxruntime", "elftools"} & {name.partition(".")[0] for name in sys.modules}
assert not hasattr(repertory, "c8x")
assert {"C7xVirtualMachine", "c7x", "mxa"} <= set(repertory.__all__)
with C7xVirtualMachine(sys.argv[1]) as vm:
    print(vm["main"](tvm.nd.array(np.array([[1, 2, 3, 4]], np.float32))).numpy().tolist())
"""


def test_the_package_loads_it_for_those_who_ask(tmp_path: Path) -> None:
    assert run(LAZY, write(tmp_path, affine()), f"sim+c7x://?{QUICK}") == ["[[2.0, 4.0, 6.0, 8.0]]"]


ENDED = """
import os, signal, sys, threading
import numpy as np
from repertory import C7xVirtualMachine
vm = C7xVirtualMachine(sys.argv[1])
vm.create_input((1, 4))
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    vm["main"](np.zeros((1, 4), np.float32))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_script_that_ends_after_a_ctrl_c(tmp_path: Path) -> None:
    assert run(ENDED, write(tmp_path, slow(0.8)), f"sim+c7x://?{QUICK}") == ["interrupted"]
