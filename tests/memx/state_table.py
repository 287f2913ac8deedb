"""The state tables of the library as data: device groups, then model contexts.

A row says: in that state this call returns this, and leads to that state. States are reached by calls. Both
profiles behave so, unless a row names one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from repertory.transports.memx.constants import Status

__all__ = [
    "CLOSED",
    "CONTEXTS",
    "CRASH",
    "ENABLED",
    "FOREVER",
    "GROUPS",
    "OPEN",
    "PAUSED",
    "RUNNING",
    "WRONG_ANSWERS",
    "Row",
]

STRICT, COMPAT = "strict", "compat-2.11"
FOREVER, CRASH = "waits for ever", "crashes"
CLOSED, OPEN, PAUSED, RUNNING = "closed", "open", "paused", "running"
WRONG_ANSWERS = "answers by wrong weights"

OPENED = ("open(0, 0, 31.0)",)
LOADED = (*OPENED, "download_model(0, GOOD, 0, 0x83)")
ENABLED = (*LOADED, "set_stream_enable(0, 0)")
FILLED = (*LOADED, *["stream_ifmap(0, 0, FRAME, 1)"] * 3)


class Row(NamedTuple):
    """One row.

    Attributes:
        state: the calls that lead to it.
        call: the call, without `memx_`.
        result: its status, all that it returns, FOREVER or CRASH.
        after: what context 0 is afterwards, where that is of interest; or calls with their results.
        profiles: who behaves so.
    """

    state: tuple[str, ...]
    call: str
    result: Any
    after: Any = None
    profiles: tuple[str, ...] = (STRICT, COMPAT)


def row(state: tuple[str, ...], call: str, result: Any, after: Any = None, only: str | None = None) -> Row:
    return Row(state, call, result, after, (STRICT, COMPAT) if only is None else (only,))


NOT_OPEN, OK = Status.CONTEXT_NOT_OPEN, Status.OK
ZEROS = (0, 0, 0, 0, 0)

GROUPS = [
    # absent
    *[
        row((), call, Status.BAD_GROUP_ID)
        for call in (
            "lock(2)",
            "trylock(2)",
            "unlock(2)",
            "open(0, 2, 31.0)",
            "config_mpu_group(2, 0)",
            "set_feature(2, 0, 1, 600)",
            "enter_device_deep_sleep(2)",
            "exit_device_deep_sleep(2)",
        )
    ],
    row((), "get_feature(2, 0, 6)", (Status.BAD_GROUP_ID, b"")),
    row((), "operation_get_mpu_group_count(2)", (Status.BAD_GROUP_ID, 0)),
    row((), "get_total_chip_count(2)", (Status.BAD_GROUP_ID, 0)),
    # locks
    row((), "lock(0)", OK, [("trylock(0)", Status.GROUP_IN_USE)]),
    row((), "trylock(0)", OK, [("trylock(0)", Status.GROUP_IN_USE), ("trylock(1)", OK)]),
    row((), "unlock(0)", OK, [("trylock(0)", OK)]),
    row(("lock(0)",), "trylock(0)", Status.GROUP_IN_USE),
    row(("lock(0)",), "lock(0)", FOREVER),
    row(("lock(0)",), "unlock(0)", OK, [("trylock(0)", OK)]),
    row(("trylock(0)", "trylock(0)"), "unlock(0)", OK, [("trylock(0)", OK)]),
    row(("lock(0)",), "lock(1)", OK),
    row(("lock(0)",), "open(0, 0, 31.0)", OK, OPEN),
    row(("lock(0)", *OPENED), "download_model(0, GOOD, 0, 0x83)", OK, PAUSED),
    row(("lock(0)", *ENABLED), "stream_ifmap(0, 0, FRAME, 1)", OK),
    row(("leak_mutex(0)",), "trylock(0)", Status.GROUP_IN_USE, [("unlock(0)", OK), ("trylock(0)", OK)]),
    row(("leak_mutex(0)",), "lock(0)", FOREVER),
    # configuration: what it needs, and into how many groups it makes four chips
    *[
        row((), f"config_mpu_group(0, {config})", OK, [("operation_get_mpu_group_count(0)", (OK, parts))])
        for config, parts in ((0, 1), (1, 2), (2, 1), (3, 1), (4, 1))
    ],
    *[row((), f"config_mpu_group(0, {config})", Status.NOT_ENOUGH_CHIPS) for config in (5, 6, 7)],
    row((), "config_mpu_group(0, 8)", Status.BAD_ARGUMENT),
    row((), "config_mpu_group(0, -1)", Status.BAD_ARGUMENT),
    row(LOADED, "config_mpu_group(0, 4)", OK, [("get_ifmap_size(0, 0)", (OK, 4, 6, 1, 3, 5))]),
    # features
    row((), "get_feature(0, 0, 23)", (Status.BAD_ARGUMENT, b"")),
    row((), "get_feature(0, 0, -1)", (Status.BAD_ARGUMENT, b"")),
    row((), "get_feature(0, 4, 6)", (Status.BAD_ARGUMENT, b"")),
    row((), "set_feature(0, 0, 9, 0)", Status.BAD_ARGUMENT),
    row((), "get_feature(0, 0, 21)", (Status.BAD_ARGUMENT, b""), only=COMPAT),
    row((), "get_feature(0, 0, 21)", (OK, (600).to_bytes(8, "little")), only=STRICT),
    row((), "set_feature(0, 0, 8, 0)", Status.BAD_ARGUMENT, only=COMPAT),
    row((), "set_feature(0, 0, 8, 0)", OK, only=STRICT),
    row(("admin_timeout(0)",), "get_feature(0, 0, 6)", (Status.ADMIN_TIMEOUT, b"")),
    row(("admin_timeout(0)",), "set_feature(0, 0, 1, 600)", Status.ADMIN_TIMEOUT),
    row(("admin_timeout(0)",), "config_mpu_group(0, 0)", Status.ADMIN_TIMEOUT),
    # gone after load
    row(("gone(0)",), "open(0, 0, 31.0)", Status.TRANSPORT_OPEN_FAILED, CLOSED),
    row(("gone(0)",), "open(0, 1, 31.0)", OK, OPEN),
    row(("gone(0)",), "get_feature(0, 0, 6)", (Status.GENERIC_FAILURE, b"")),
    row(("gone(0)",), "set_feature(0, 0, 1, 600)", Status.GENERIC_FAILURE),
    row(("gone(0)",), "config_mpu_group(0, 0)", Status.IOCTL_FAILED),
    row(("gone(0)",), "operation_get_device_count()", (OK, 2)),
    row(("gone(0)",), "get_total_chip_count(0)", (OK, 4)),
]

ONE_CONTEXT_CALLS = (
    "download_model(ID, GOOD, 0, 0x83)",
    "download_model(ID, GOOD, 0, 0)",
    "download_model_wtmem(ID, b'/nowhere')",
    "download_model_config(ID, b'/nowhere', 0)",
    "set_stream_enable(ID, 0)",
    "set_stream_enable(ID, 1)",
    "set_stream_disable(ID, 0)",
    "set_stream_disable(ID, 1)",
    "stream_ifmap(ID, 0, FRAME, 1)",
    "stream_ofmap(ID, 0, OUT, 1)",
    "set_ifmap_queue_size(ID, 4)",
    "set_ofmap_queue_size(ID, 4)",
    "set_powerstate(ID, 0)",
    "set_abort_read(ID)",
    "operation(ID, 0, WORD, 4)",
    "enqueue_ifmap_buf(ID, 0, FOREIGN, 1)",
    "enqueue_ofmap_buf(ID, 0, FOREIGN, 1)",
)
SIZES = {
    "get_ifmap_size(ID, 0)": (Status.SIZE_UNKNOWN, ZEROS),
    "get_ofmap_size(ID, 0)": (Status.SIZE_UNKNOWN, ZEROS),
    "get_ifmap_range_convert(ID, 0)": (Status.RANGE_CONVERT_UNKNOWN, (0, 0.0, 0.0)),
    "get_ofmap_hpoc(ID, 0)": (Status.HPOC_UNKNOWN, ((),)),
}


def of(call: str, model_id: int) -> str:
    return call.replace("ID", str(model_id))


CONTEXTS = [
    # an id beyond the table
    *[
        row((), of(call, 32), Status.BAD_MODEL_ID)
        for call in (*ONE_CONTEXT_CALLS, "open(ID, 0, 31.0)", "close(ID)")
    ],
    row((), "get_chip_gen(32)", (Status.BAD_MODEL_ID, 0)),
    row((), "dequeue_ifmap_buf(32, 0, 1)", (Status.BAD_MODEL_ID, None)),
    row((), "dequeue_ofmap_buf(32, 0, 1)", (Status.BAD_MODEL_ID, None)),
    *[row((), of(call, 32), (Status.BAD_ENGINE, *nothing)) for call, (_, nothing) in SIZES.items()],
    # closed
    row((), "open(0, 0, 31.0)", OK, OPEN),
    row((), "open(31, 1, 0.0)", OK),
    row((), "close(0)", OK, CLOSED, only=STRICT),
    row((), "close(0)", NOT_OPEN, CLOSED, only=COMPAT),
    *[row((), of(call, 0), NOT_OPEN, CLOSED) for call in ONE_CONTEXT_CALLS],
    row((), "get_chip_gen(0)", (NOT_OPEN, 0)),
    row((), "dequeue_ifmap_buf(0, 0, 1)", (NOT_OPEN, None)),
    *[row((), of(call, 0), CRASH) for call in SIZES],
    row((), "reconfigure(0, 0)", NOT_OPEN, only=STRICT),
    # open, loaded: counting
    *[
        row(state, call, result, after)
        for state, after in ((OPENED, OPEN), (LOADED, PAUSED))
        for call, result in (("open(0, 0, 31.0)", OK), ("open(0, 1, 31.0)", Status.CONTEXT_ON_OTHER_GROUP))
    ],
    row((*OPENED, *OPENED), "close(0)", OK, OPEN),
    row((*LOADED, *OPENED), "close(0)", OK, PAUSED),
    row(OPENED, "close(0)", OK, CLOSED),
    row(LOADED, "close(0)", OK, CLOSED),
    row((*ENABLED, "close(0)"), "open(0, 1, 31.0)", OK, OPEN),
    # open
    row(OPENED, "stream_ifmap(0, 0, FRAME, 1)", Status.INPUT_FLOW_NOT_CONFIGURED),
    row(OPENED, "stream_ofmap(0, 0, OUT, 1)", Status.OUTPUT_FLOW_NOT_CONFIGURED),
    row(OPENED, "stream_ifmap(0, 32, FRAME, 1)", Status.INPUT_FLOW_NOT_CONFIGURED),
    *[row(OPENED, of(call, 0), (status, *nothing)) for call, (status, nothing) in SIZES.items()],
    row(OPENED, "dequeue_ifmap_buf(0, 0, 1)", (Status.NOTHING_DOWNLOADED, None)),
    row(OPENED, "dequeue_ofmap_buf(0, 0, 1)", (Status.NOTHING_DOWNLOADED, None)),
    row(OPENED, "enqueue_ifmap_buf(0, 0, FOREIGN, 1)", Status.NOTHING_DOWNLOADED),
    row(OPENED, "enqueue_ofmap_buf(0, 0, FOREIGN, 1)", Status.NOTHING_DOWNLOADED),
    row(
        (*LOADED, "open(1, 0, 31.0)"), "dequeue_ifmap_buf(1, 0, 1)", (Status.INPUT_FLOW_NOT_CONFIGURED, None)
    ),
    *[
        row(OPENED, call, OK, OPEN)
        for call in ("set_stream_enable(0, 0)", "set_stream_disable(0, 0)", "set_stream_disable(0, 1)")
    ],
    row(OPENED, "get_chip_gen(0)", (OK, 31)),
    # enable that waits
    *[row(state, "set_stream_enable(0, 1)", FOREVER, only=COMPAT) for state in (OPENED, LOADED)],
    row(LOADED, "set_stream_enable(0, 1)", OK, RUNNING, only=STRICT),
    # queue sizes
    *[
        row(OPENED, f"set_{side}_queue_size(0, {size})", result)
        for side in ("ifmap", "ofmap")
        for size, result in ((-1, Status.BAD_QUEUE_SIZE), (0, Status.BAD_QUEUE_SIZE), (1, OK), (1000, OK))
    ],
    row(OPENED, "set_ifmap_queue_size(0, 1001)", Status.BAD_QUEUE_SIZE),
    row(LOADED, "set_ifmap_queue_size(0, 1)", OK, [("stream_ifmap(0, 0, FRAME, 1)", OK)]),
    row(
        (*OPENED, "set_ifmap_queue_size(0, 1)", "download_model(0, GOOD, 0, 0x83)"),
        "stream_ifmap(0, 0, FRAME, 1)",
        Status.INPUT_TIMEOUT,
    ),
    # downloads
    row(OPENED, "download_model(0, GOOD, 0, 0x83)", OK, PAUSED),
    row(OPENED, "download_model(0, PATH, 0, 3)", OK, PAUSED),
    row((*OPENED, "set_stream_enable(0, 0)"), "download_model(0, GOOD, 0, 0x83)", OK, RUNNING),
    row(OPENED, "download_model(0, GOOD, 0, 0)", OK, OPEN),
    row(OPENED, "download_model(0, GOOD, 9, 0x81)", OK, OPEN),
    row(OPENED, "download_model(0, GOOD, 0, 0x82)", OK, [("get_ifmap_size(0, 0)", (OK, 4, 6, 1, 3, 5))]),
    row(
        (*OPENED, "download_model_wtmem(0, PATH)"),
        "download_model_config(0, PATH, 0)",
        OK,
        PAUSED,
        only=STRICT,
    ),
    *[
        row(state, call, status, after)
        for state, after in ((OPENED, OPEN), ((*LOADED, "close(5)"), None))
        for call, status in (
            ("download_model(0, b'/nowhere', 0, 3)", Status.DFP_CANNOT_BE_OPENED),
            ("download_model(0, VERSION_5, 0, 0x83)", Status.DFP_READ_ERROR),
            ("download_model(0, GOOD, 1, 0x83)", Status.DFP_BAD_CONTENT),
            ("download_model(0, RUBBISH, 0, 0x83)", Status.DFP_BAD_CONTENT),
            ("download_model(0, VERSION_7, 0, 0x83)", Status.DFP_VERSION_REFUSED),
            ("download_model(0, TWO_CHIPS, 0, 0x83)", Status.DOWNLOAD_FAILED),
        )
    ],
    row((*OPENED, "fail_download(1)"), "download_model(0, GOOD, 0, 0x83)", Status.DOWNLOAD_FAILED, OPEN),
    row((*OPENED, "gone(0)"), "download_model(0, GOOD, 0, 0x83)", Status.DOWNLOAD_FAILED, OPEN),
    row(
        (*OPENED, "fail_weights(1)"),
        "download_model(0, GOOD, 0, 0x83)",
        Status.DOWNLOAD_FAILED,
        OPEN,
        only=STRICT,
    ),
    row((*OPENED, "fail_weights(1)"), "download_model(0, GOOD, 0, 0x83)", OK, WRONG_ANSWERS, only=COMPAT),
    row(
        (*OPENED, "config_mpu_group(0, 1)", "download_model(0, GOOD, 0, 0x83)", "close(9)"),
        "download_model(0, GOOD, 0, 0x83)",
        Status.DOWNLOAD_FAILED,
    ),
    row(
        (*LOADED, "config_mpu_group(0, 1)"),
        "download_model(0, GOOD, 0, 0x83)",
        Status.DOWNLOAD_FAILED,
        only=STRICT,
    ),
    row((*LOADED, "config_mpu_group(0, 1)"), "download_model(0, GOOD, 0, 0x83)", CRASH, only=COMPAT),
    row((*LOADED, "config_mpu_group(0, 0)"), "download_model(0, GOOD, 0, 0x83)", OK, PAUSED),
    # the last download, and what clears it
    row(
        LOADED,
        "download_model(0, OTHER, 0, 0x83)",
        OK,
        [("get_ifmap_size(0, 1)", (Status.SIZE_UNKNOWN, *ZEROS))],
        COMPAT,
    ),
    row(
        LOADED,
        "download_model(0, OTHER, 0, 0x83)",
        OK,
        [("get_ifmap_size(0, 1)", (OK, 4, 6, 1, 3, 5))],
        STRICT,
    ),
    row((*OPENED, "download_model(0, GOOD, 0, 0x81)"), "download_model(0, GOOD, 0, 0x82)", OK, OPEN, COMPAT),
    row(
        (*OPENED, "download_model(0, GOOD, 0, 0x81)"), "download_model(0, GOOD, 0, 0x82)", OK, PAUSED, STRICT
    ),
    *[
        row((*OPENED, failed), "download_model(0, GOOD, 0, 0x83)", OK, after, profile)
        for failed in ("download_model(0, RUBBISH, 0, 0x83)", "download_model(0, b'/nowhere', 0, 3)")
        for after, profile in ((OPEN, COMPAT), (PAUSED, STRICT))
    ],
    *[
        row(
            ("open(1, 0, 31.0)", *LOADED, clearing),
            "download_model(0, OTHER, 0, 0x83)",
            OK,
            [("get_ifmap_size(0, 1)", (OK, 4, 6, 1, 3, 5))],
        )
        for clearing in (
            "close(9)",
            "config_mpu_group(0, 0)",
            "set_powerstate(0, 3)",
            "download_model(1, RUBBISH, 0, 0x83)",
        )
    ],
    row(
        (*LOADED, *OPENED, "close(0)"),
        "download_model(0, OTHER, 0, 0x83)",
        OK,
        [("get_ifmap_size(0, 1)", (OK, 4, 6, 1, 3, 5))],
    ),
    *[
        row(
            (*LOADED, keeping),
            "download_model(0, OTHER, 0, 0x83)",
            OK,
            [("get_ifmap_size(0, 1)", (Status.SIZE_UNKNOWN, *ZEROS))],
            COMPAT,
        )
        for keeping in ("set_powerstate(0, 1)", "config_mpu_group(0, 8)", "open(0, 0, 31.0)")
    ],
    # the order of checks
    *[
        row(LOADED, f"stream_{side}(0, {flow}, {buffer}, {timeout})", status)
        for side, array, inactive in (
            ("ifmap", "FRAME", Status.INPUT_FLOW_NOT_CONFIGURED),
            ("ofmap", "OUT", Status.OUTPUT_FLOW_NOT_CONFIGURED),
        )
        for flow, buffer, timeout, status in (
            (32, "None", -1, Status.BAD_FLOW_ID),
            (5, "None", -1, inactive),
            (0, "None", -1, Status.NULL_POINTER),
            (0, array, -1, Status.BAD_ARGUMENT),
            (0, array, 21_474_836, Status.BAD_ARGUMENT),
        )
    ],
    row(LOADED, "dequeue_ifmap_buf(0, 0, -1)", (Status.BAD_ARGUMENT, None)),
    row(LOADED, "dequeue_ofmap_buf(0, 32, 1)", (Status.BAD_FLOW_ID, None)),
    # streams of a loaded context
    row(LOADED, "stream_ifmap(0, 0, FRAME, 21474835)", OK),
    row(FILLED, "stream_ifmap(0, 0, FRAME, 1)", Status.INPUT_TIMEOUT),
    row(FILLED, "stream_ifmap(0, 0, FRAME, 0)", FOREVER),
    row(LOADED, "stream_ofmap(0, 0, OUT, 1)", Status.OUTPUT_TIMEOUT),
    row(LOADED, "stream_ofmap(0, 0, OUT, 0)", FOREVER),
    row((*FILLED, "set_stream_enable(0, 0)"), "stream_ofmap(0, 0, OUT, 50)", OK),
    row((*FILLED, "set_stream_enable(0, 0)"), "stream_ifmap(0, 0, FRAME, 50)", OK),
    row((*ENABLED, "stream_ifmap(0, 0, FRAME, 1)"), "stream_ofmap(0, 0, OUT, 0)", OK),
    row(ENABLED, "stream_ofmap(0, 0, OUT, 5)", Status.OUTPUT_TIMEOUT),
    # stop and go on
    row(LOADED, "set_stream_enable(0, 0)", OK, RUNNING),
    row(ENABLED, "set_stream_disable(0, 0)", OK, PAUSED),
    row(ENABLED, "set_stream_disable(0, 1)", OK, PAUSED),
    row((*ENABLED, "set_stream_disable(0, 0)"), "set_stream_enable(0, 0)", OK, RUNNING),
    # transports that fail, groups that hang
    *[
        row((*ENABLED, fault), call, status)
        for fault in ("hang(0)", "gone(0)")
        for call, status in (
            ("stream_ofmap(0, 0, OUT, 5)", Status.OUTPUT_TIMEOUT),
            ("stream_ifmap(0, 0, FRAME, 5)", OK),
        )
    ],
    *[
        row(
            (*ENABLED, fault, *["stream_ifmap(0, 0, FRAME, 1)"] * 3),
            "stream_ifmap(0, 0, FRAME, 5)",
            Status.INPUT_TIMEOUT,
        )
        for fault in ("hang(0)", "gone(0)")
    ],
    row((*ENABLED, "hang(0)"), "close(0)", FOREVER),
    row((*ENABLED, "hang(0)"), "set_stream_disable(0, 1)", FOREVER),
    row((*ENABLED, "hang(0)"), "set_stream_disable(0, 0)", OK),
    row((*OPENED, "hang(0)"), "download_model(0, GOOD, 0, 0x83)", FOREVER),
    row((*ENABLED, *OPENED, "hang(0)"), "close(0)", OK),
    row((*ENABLED, "gone(0)"), "close(0)", OK, CLOSED),
    row((*ENABLED, "gone(0)", "stream_ifmap(0, 0, FRAME, 1)"), "close(0)", FOREVER),
    row((*ENABLED, "gone(0)", "stream_ifmap(0, 0, FRAME, 1)"), "set_stream_disable(0, 1)", FOREVER),
    row((*ENABLED, "gone(0)"), "set_stream_disable(0, 1)", OK),
    # reconfigure, where it is exported
    row(OPENED, "reconfigure(0, 2)", Status.BAD_GROUP_ID, OPEN, only=STRICT),
    row(LOADED, "reconfigure(0, 0)", OK, [("get_ifmap_size(0, 0)", (Status.SIZE_UNKNOWN, *ZEROS))], STRICT),
    row(LOADED, "reconfigure(0, 1)", OK, [("open(0, 0, 31.0)", Status.CONTEXT_ON_OTHER_GROUP)], STRICT),
    row((*LOADED, "reconfigure(0, 1)"), "download_model(0, GOOD, 0, 0x83)", OK, PAUSED, STRICT),
    row((*ENABLED, "stream_ifmap(0, 0, FRAME, 1)"), "reconfigure(0, 0)", CRASH, only=STRICT),
    # abort, power states, operations
    row(
        ENABLED,
        "set_abort_read(0)",
        OK,
        [("stream_ofmap(0, 0, OUT, 1)", Status.OUTPUT_TIMEOUT), ("close(0)", OK)],
    ),
    row((*ENABLED, "stream_ifmap(0, 0, FRAME, 1)", "set_abort_read(0)"), "close(0)", OK, CLOSED),
    *[row(LOADED, f"set_powerstate(0, {state})", OK) for state in range(4)],
    row(LOADED, "set_powerstate(0, 4)", Status.BAD_ARGUMENT),
    row(LOADED, "set_powerstate(0, -1)", Status.BAD_ARGUMENT),
    row(OPENED, "operation(0, 6, WORD, 4)", Status.BAD_COMMAND),
    row(OPENED, "operation(0, 0, None, 4)", Status.NULL_POINTER),
    row(OPENED, "operation(0, 0, WORD, 4)", OK),
    row(OPENED, "operation(0, 2, WORD, 4)", OK, [("operation_get_mpu_group_count(0)", (OK, 1))]),
    # buffers of the library
    row((*LOADED, *["dequeue_ifmap_buf(0, 0, 1)"] * 3), "dequeue_ifmap_buf(0, 0, 1)[0]", OK),
    row(
        (*LOADED, *["dequeue_ifmap_buf(0, 0, 1)"] * 4),
        "dequeue_ifmap_buf(0, 0, 1)",
        (Status.DEQUEUE_INPUT_TIMEOUT, None),
    ),
    row(ENABLED, "dequeue_ofmap_buf(0, 0, 1)", (Status.DEQUEUE_OUTPUT_TIMEOUT, None)),
    row(LOADED, "enqueue_ifmap_buf(0, 0, FOREIGN, 1)", Status.BAD_ENGINE),
    row(LOADED, "enqueue_ofmap_buf(0, 0, FOREIGN, 1)", Status.BAD_ENGINE),
]
