"""Where the driver is safe from each trap of libmemx: the text of each guard, and the test that needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

__all__ = ["GUARDS", "Guard", "Who"]

Who: TypeAlias = Literal["both", "compat-2.11", "the test", "neither"]


@final
@dataclass(frozen=True, slots=True)
class Guard:
    """A guard and its absence.

    Attributes:
        trap: what libmemx does, in a line.
        file: of the package, from the project's root.
        text: the guard, as it stands in the file exactly once.
        instead: what stands there where it is gone.
        tests: the tests that must fail then, as `file.py::name`; no other of this folder may.
        who: which simulated library has the trap; `the test` where that makes it itself; `neither` where it
            shows that the library is not asked.
    """

    trap: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]
    who: Who = "both"


_CONTEXTS = "transports/memx/contexts.py"
_CONTROL = "transports/memx/control.py"
_DEVICE = "transports/memx/device.py"
_PROGRAM = "transports/memx/program.py"
_STREAMS = "transports/memx/streams.py"
_TRANSFER = "transports/memx/transfer.py"

GUARDS: Final = (
    # -- locks
    Guard(
        "a trylock that fails for a lock file keeps the in-process mutex",
        _CONTROL,
        """\
            await self._library.memx_unlock(self._group)
        if status == Status.GROUP_IN_USE:""",
        """\
            pass
        if status == Status.GROUP_IN_USE:""",
        ("test_locks.py::test_a_trylock_that_fails_leaves_no_mutex_taken",),
        "compat-2.11",
    ),
    Guard(
        "a lock that is held is waited for without a bound",
        _CONTROL,
        "status = await self._library.memx_trylock(self._group)",
        "status = await self._library.memx_lock(self._group)",
        (
            "test_locks.py::test_a_lock_that_is_held_is_not_waited_for",
            "test_locks.py::test_a_trylock_that_fails_leaves_no_mutex_taken",  # there a process holds it
        ),
    ),
    Guard(
        "a lock that is held tells nothing of its holder",
        _DEVICE,
        "self._lock.acquire()",
        "pass",
        ("test_locks.py::test_our_own_lock_comes_first_and_names_its_holder",),
        "neither",
    ),
    # -- contexts
    Guard(
        "a close of a context that is not open fails, though documented as safe",
        _CONTROL,
        """\
        self._table.bound(context, None)
        await self._open(context)""",
        "        await self._open(context)",
        ("test_contexts.py::test_a_context_that_could_not_be_opened_again_is_closed_once",),
        "compat-2.11",
    ),
    Guard(
        "size calls on a context that is not open crash",
        _CONTROL,
        'check(await library.memx_open(model_id, self._group, CHIP_GENERATION), "memx_open")',
        "await library.memx_open(model_id, self._group, CHIP_GENERATION)",
        (
            "test_contexts.py::test_sizes_of_a_context_that_is_not_open_are_never_asked_for",
            "test_contexts.py::test_a_context_that_could_not_be_opened_again_is_closed_once",  # it counts so
        ),
    ),
    Guard(
        "a process has 32 contexts",
        _CONTEXTS,
        """\
            if idle:
                return self._claimed(idle[0])
""",
        "",
        ("test_contexts.py::test_the_33rd_program_takes_the_place_of_the_one_that_was_idle_longest",),
    ),
    Guard(
        "a context belongs to one group",
        _CONTROL,
        "elif context.group != self._group or self._table.spoiled(context):",
        "elif self._table.spoiled(context):",
        ("test_contexts.py::test_a_program_moves_to_another_group_with_its_context",),
        "compat-2.11",
    ),
    Guard(
        "a reader that is blocked when its context is closed never returns",
        _DEVICE,
        "self._streams.give_up()",
        "pass",
        ("test_contexts.py::test_nobody_reads_from_a_context_that_is_closed",),
        "compat-2.11",
    ),
    Guard(
        "a close of a hung device never returns",
        _DEVICE,
        "bound=bound * 3 / 4,",
        "bound=1e4,",
        ("test_contexts.py::test_a_close_that_hangs_is_over_within_the_bound",),
    ),
    # -- downloads
    Guard(
        "a download to the id that was downloaded to last does nothing, also after a failure",
        _CONTEXTS,
        "return context.model_id in self._spoiled",
        "return False",
        (
            "test_downloads.py::test_a_download_to_the_id_that_was_downloaded_to_last_is_done",
            "test_downloads.py::test_a_retry_after_a_failed_download_is_done",
        ),
        "compat-2.11",
    ),
    Guard(
        "a download that did nothing is OK",
        _CONTROL,
        "await self._verify(context, image)",
        "pass",
        ("test_downloads.py::test_a_download_that_did_nothing_is_noticed",),
        "the test",
    ),
    Guard(
        "a load of weights that fails is not reported",
        _CONTROL,
        "await self._check_admin()",
        "pass",
        ("test_downloads.py::test_weights_that_may_not_have_arrived_are_no_success",),
        "compat-2.11",
    ),
    Guard(
        "the chip count in a file must be the group's configured one",
        _CONTROL,
        "await self._configure(image.chips)",
        "pass",
        ("test_downloads.py::test_a_group_is_set_to_the_chips_that_a_file_is_for",),
    ),
    Guard(
        "a download to a group of two halves crashes",
        _CONTROL,
        "GROUP_CONFIGS.index(chips))",
        "max(config for config, count in enumerate(GROUP_CONFIGS) if count == chips))",
        ("test_downloads.py::test_a_group_is_never_halved",),
        "compat-2.11",
    ),
    Guard(
        "a truncated file crashes the process",
        "models/mxpack.py",
        "if end > len(self.view):",
        "if False:",
        ("test_downloads.py::test_a_truncated_file_never_reaches_the_library",),
        "neither",
    ),
    Guard(
        "a file for more chips than there are divides by zero",
        _PROGRAM,
        "if chips and dfp.chips > chips:",
        "if False:",
        ("test_downloads.py::test_a_file_for_more_chips_never_reaches_the_library",),
        "neither",
    ),
    Guard(
        "the library does not look for which generation a file is",
        _PROGRAM,
        "if dfp.generation != GENERATION:",
        "if False:",
        ("test_downloads.py::test_a_file_for_another_generation_never_reaches_the_library",),
        "neither",
    ),
    # -- enable and disable
    Guard(
        "an enable with wait 1 never returns",
        _CONTROL,
        "memx_set_stream_enable(context.model_id, 0)",
        "memx_set_stream_enable(context.model_id, 1)",
        ("test_swaps.py::test_an_enable_never_waits",),
        "compat-2.11",
    ),
    Guard(
        "after a disable with wait 0 the next download may hang",
        _CONTROL,
        "memx_set_stream_disable(running.model_id, 1)",
        "memx_set_stream_disable(running.model_id, 0)",
        ("test_swaps.py::test_a_disable_always_waits",),
        "the test",
    ),
    Guard(
        "a disabled context keeps frames, and sends them when it is enabled",
        "actors/flightbook.py",
        "return state.in_flight > 0",
        "return False",
        ("test_swaps.py::test_no_frame_stays_behind_in_a_context_that_is_disabled",),
    ),
    Guard(
        "a disable or a download on a hung device never returns",
        _DEVICE,
        "bound=bound or self._bind_bound",
        "bound=1e4",
        ("test_swaps.py::test_a_swap_that_hangs_is_over_within_the_bound",),
    ),
    # -- streams
    Guard(
        "outputs carry no mark of their input",
        _STREAMS,
        "if written.ended is None:",
        "if written.ended is None or frame.outcome is not None:",
        ("test_streams.py::test_an_answer_that_nobody_waits_for_is_read_out",),
    ),
    Guard(
        "a queue of N slots holds N - 1 frames, one of 1 none",
        _DEVICE,
        "queue=self._window + 1",
        "queue=self._window",
        ("test_streams.py::test_a_window_of_one_frame_has_a_queue_that_holds_it",),
    ),
    Guard(
        "queue sizes count from the next download on",
        _CONTROL,
        'check(await library.memx_set_ifmap_queue_size(model_id, slots), "memx_set_ifmap_queue_size")',
        "pass",
        ("test_streams.py::test_queues_have_their_size_before_the_first_download",),
    ),
    Guard(
        "time-outs count polls: a millisecond takes 8 to 11",
        _DEVICE,
        "if not self._calibrated:",
        "if False:",
        ("test_streams.py::test_a_stream_call_is_back_soon_whatever_a_millisecond_is",),
        "compat-2.11",
    ),
    Guard(
        "time-out 0 waits for ever",
        "transports/pump.py",
        "self.milliseconds = max(1, int(self._aim * 1000 / stretch))",
        "self.milliseconds = int(self._aim * 1000 / stretch)",
        ("test_streams.py::test_a_timeout_of_zero_is_never_asked_for",),
    ),
    Guard(
        "a transport that fails shows only as time-outs",
        _DEVICE,
        "            stall=stall,\n",
        "            stall=1e9,\n",
        ("test_streams.py::test_a_transport_that_fails_is_found_out_by_its_silence",),
    ),
    Guard(
        "a blocked stream call burns a core",
        _STREAMS,
        """\
                self._outbox.put(await self._read(await self._to_read.get()))
""",
        """\
                self._outbox.put(await self._read(await self._to_read.get()))
                if not self._to_read._items:
                    frame = __import__("numpy").empty(4096, "u1")
                    await self._transfer._library.memx_stream_ofmap(self.model_id, 0, frame, 1)
""",
        ("test_streams.py::test_nothing_is_called_while_nothing_is_in_flight",),
        "neither",
    ),
    # -- buffers of the library
    Guard(
        "each flow has as many buffers to lend as its queue has slots",
        _TRANSFER,
        """\
                await self._until(
                    lambda wait: library.memx_enqueue_ofmap_buf(model_id, flow, lent, wait),
                    "memx_enqueue_ofmap_buf",
                )
""",
        "                pass\n",
        ("test_lent_buffers.py::test_each_buffer_is_given_back_once_and_not_used_again",),
    ),
    # -- processes
    Guard(
        "the child of a fork has handles and no threads",
        "runtime/runtime.py",
        "os.register_at_fork(after_in_child=_forked)",
        "pass",
        ("test_processes.py::test_the_child_of_a_fork_is_told_to_open_its_own",),
    ),
    Guard(
        "the end of a process waits in a destructor for a hung device",
        "transports/memx/hardware.py",
        'isolation: Isolation = "process"',
        'isolation: Isolation = "none"',
        ("test_processes.py::test_a_library_that_does_not_unload_lets_the_program_end",),
        "the test",
    ),
)
"""All of them; traps that no guard in the code is for (see docs/traps.md) are not here."""
