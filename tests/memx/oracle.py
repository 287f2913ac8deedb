"""The library's state tables once more, as an oracle: dictionaries, lists, and nothing of the simulator's.

It predicts what each call returns and when. It is written from the tables and from what is told about
queues, pipelines and time, and keeps whole frames, so that it knows each output's bytes as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

from repertory.transports.memx.constants import Status
from repertory.transports.memx.simulator.answers import hash_answer

__all__ = ["CRASH", "EARLY", "FOREVER", "Crash", "Oracle", "Refused", "Stuck", "lanes_of"]

Table: TypeAlias = dict[str, Any]

CRASH, FOREVER = "crash", "forever"
EARLY = 1e-9
NEEDS = (4, 4, 1, 3, 2, 8, 12, 16)


class Refused(Exception):
    """The call returns this status."""


class Crash(Exception):
    """The vendor leaves it undefined."""


class Stuck(Exception):
    """The call never returns."""


def refuse(unless: object, status: Status) -> None:
    if not unless:
        raise Refused(status)


def crash(when: object) -> None:
    if when:
        raise Crash


def lanes_of(context: Table) -> list[Table]:
    lanes: list[Table] = context["load"]["lanes"] if context["load"] else []
    return lanes


class Oracle:
    """Predicts; `now` is set by whoever drives it, and moved by calls that wait.

    Args:
        compat: whether libmemx 2.11.2 is predicted, with all of its traps.
        files: for each name, its chips, its bytes, and its models: number to networks, each a dict of name,
            ins, outs (bytes of a frame by flow), latency and interval.
        depth: of the pipelines.
        step: seconds between two looks of a waiting call, or 0.
        factor: how much longer than asked time-outs take.
    """

    def __init__(
        self, files: Table, *, compat: bool, depth: int, step: float, factor: float, now: float
    ) -> None:
        self.files, self.compat, self.depth = files, compat, depth
        self.step, self.factor, self.now = step, factor, now
        self.groups: list[Table] = [
            {"locked": False, "configured": 4, "halves": 1, "halts": set(), "pace": 1.0}
            | {"resident": None, "weights": None, "spoiled": False}
            for _ in range(2)
        ]
        self.contexts: dict[int, Table] = {}
        self.last: int | None = None
        self.downloaded = False
        self.failing = self.failing_weights = 0

    # -- device groups

    def group(self, group_id: int) -> Table:
        refuse(0 <= group_id < 2, Status.BAD_GROUP_ID)
        return self.groups[group_id]

    def on(self, group: Table) -> list[Table]:
        return [context for context in self.contexts.values() if context["group"] is group]

    def lock(self, group_id: int, *, wait: bool) -> None:
        group = self.group(group_id)
        if group["locked"] and wait:
            raise Stuck
        refuse(not group["locked"], Status.GROUP_IN_USE)
        group["locked"] = True

    def unlock(self, group_id: int) -> None:
        self.group(group_id)["locked"] = False

    def config(self, group_id: int, config: int) -> None:
        group = self.group(group_id)
        refuse(0 <= config <= 7, Status.BAD_ARGUMENT)
        refuse(NEEDS[config] <= 4, Status.NOT_ENOUGH_CHIPS)
        refuse("gone" not in group["halts"], Status.IOCTL_FAILED)
        self.check_idle(group)
        self.check_disabled(self.on(group))
        group["halves"] = 2 if config == 1 else 1
        group["configured"] = {0: 4, 1: 2, 2: 1, 3: 3, 4: 2}[config]
        self.forget(group)
        self.last = None

    def frequency(self, group_id: int, mhz: int) -> None:
        group = self.group(group_id)
        refuse("gone" not in group["halts"], Status.GENERIC_FAILURE)
        refuse(200 <= mhz <= 1000 and mhz % 25 == 0, Status.BAD_ARGUMENT)
        group["pace"] = 600 / mhz

    def sleep(self, group_id: int, *, enter: bool) -> None:
        group = self.group(group_id)
        refuse("gone" not in group["halts"], Status.GENERIC_FAILURE)
        (group["halts"].add if enter else group["halts"].discard)("asleep")

    def forget(self, group: Table) -> None:
        group["resident"] = group["weights"] = None
        group["spoiled"] = False

    # -- contexts

    def context(self, model_id: int) -> Table:
        refuse(0 <= model_id < 32, Status.BAD_MODEL_ID)
        refuse(model_id in self.contexts, Status.CONTEXT_NOT_OPEN)
        return self.contexts[model_id]

    def open(self, model_id: int, group_id: int) -> None:
        refuse(0 <= model_id < 32, Status.BAD_MODEL_ID)
        group = self.group(group_id)
        refuse("gone" not in group["halts"], Status.TRANSPORT_OPEN_FAILED)
        if model_id not in self.contexts:
            self.contexts[model_id] = {"group": group, "refs": 1, "slots": [4, 4], "activity": "paused"} | {
                "load": None,
                "unbound": False,
                "aborted": False,
            }
            return
        refuse(self.contexts[model_id]["group"] is group, Status.CONTEXT_ON_OTHER_GROUP)
        self.contexts[model_id]["refs"] += 1

    def close(self, model_id: int) -> None:
        context = self.contexts.get(model_id)
        if context and context["refs"] == 1 and self.stuck(context):
            raise Stuck
        refuse(0 <= model_id < 32, Status.BAD_MODEL_ID)
        self.last = None
        if context is None:
            refuse(not self.compat, Status.CONTEXT_NOT_OPEN)
        elif context["refs"] > 1:
            context["refs"] -= 1
        else:
            self.check_quiet(context)
            self.leave(context)
            del self.contexts[model_id]

    def leave(self, context: Table) -> None:
        if context["load"] is not None and context["group"]["resident"] is context["load"]:
            self.forget(context["group"])
        context["unbound"] = context["unbound"] or context["load"] is not None
        context["load"] = None

    def reconfigure(self, model_id: int, group_id: int) -> None:
        context, group = self.context(model_id), self.group(group_id)
        self.check_quiet(context)
        self.check_unfed(context)
        self.check_idle(group)
        self.check_disabled([context, *self.on(group)])
        self.leave(context)
        context["group"] = group
        self.forget(group)

    def queue_size(self, model_id: int, size: int, *, output: bool) -> None:
        context = self.context(model_id)
        refuse(1 <= size <= 1000, Status.BAD_QUEUE_SIZE)
        context["slots"][output] = size

    def power(self, model_id: int, state: int) -> None:
        halts = self.context(model_id)["group"]["halts"]
        refuse(0 <= state <= 3, Status.BAD_ARGUMENT)
        (halts.add if state >= 2 else halts.discard)("asleep")
        if state == 3:
            self.last = None

    def abort(self, model_id: int) -> None:
        self.context(model_id)["aborted"] = True

    # -- downloads

    def download(self, model_id: int, file: str, index: int, kind: int) -> None:
        context = self.context(model_id)
        if not kind & 3 or (self.compat and self.last == model_id):
            return
        self.last = model_id
        refuse(file != "missing", Status.DFP_CANNOT_BE_OPENED)
        refuse(file != "rubbish", Status.DFP_BAD_CONTENT)
        told, group = self.files[file], context["group"]
        refuse(not kind & 2 or index in told["models"], Status.DFP_BAD_CONTENT)
        if told["chips"] != group["configured"]:
            whole = told["chips"] == group["configured"] * group["halves"]
            crash(self.compat and whole and context["load"] is not None)
            raise Refused(Status.DOWNLOAD_FAILED)
        refuse("gone" not in group["halts"], Status.DOWNLOAD_FAILED)
        self.check_idle(group)
        self.check_disabled(other for other in self.on(group) if other is not context)
        if kind & 2:
            self.check_unfed(context)
        self.transfer(context, file, index, kind)

    def transfer(self, context: Table, file: str, index: int, kind: int) -> None:
        group, told = context["group"], self.files[file]
        spoils = bool(kind & 1) and self.failing_weights > 0
        fails = self.failing > 0 or (spoils and not self.compat)
        self.failing_weights -= spoils
        self.failing -= self.failing > 0
        if fails:
            self.forget(group)
        if kind & 1:
            group["weights"] = None
        if kind & 2:
            group["resident"] = None
        if "hung" in group["halts"]:
            raise Stuck
        weights = 0.012 + told["bytes"] / 1500e6 if kind & 1 else 0.0
        self.now += weights + (0.003 if kind & 2 else 0.0)
        refuse(not fails, Status.DOWNLOAD_FAILED)
        if kind & 1:
            group["weights"], group["spoiled"] = file, spoils
        if kind & 2:
            self.load(context, file, index)
        self.downloaded = True

    def load(self, context: Table, file: str, index: int) -> None:
        group, slots = context["group"], tuple(context["slots"])
        lanes: list[Table] = [
            {
                "net": net,
                "slots": slots,
                "spoiled": group["spoiled"],
                "pipe": [],
                "next": self.now,
                "at": self.now,
            }
            | {"ins": {flow: [] for flow in net["ins"]}, "outs": {flow: [] for flow in net["outs"]}}
            | {
                "lent": {
                    (out, flow): 0 for out, flows in enumerate((net["ins"], net["outs"])) for flow in flows
                }
            }
            for net in self.files[file]["models"][index]
        ]
        context["load"] = group["resident"] = {"file": file, "lanes": lanes}
        context["unbound"] = False

    # -- streams

    def enable(self, model_id: int, *, wait: bool) -> None:
        context = self.context(model_id)
        self.check_placed(context)
        context["activity"] = "running"
        if wait and self.compat:
            raise Stuck

    def disable(self, model_id: int, *, wait: bool) -> None:
        context = self.context(model_id)
        if context["activity"] != "paused":
            context["activity"] = "draining" if wait else "paused"
            self.settle(context)
        while wait and (self.stuck(context) or context["activity"] == "draining"):
            event = min([*map(self.next_event, self.contexts.values()), *self.ready(context)])
            if event == math.inf:
                raise Stuck
            self.advance(event)

    def ready(self, context: Table) -> list[float]:
        """Return when the oldest frames on the chips are done, even if they cannot leave then."""
        lanes = [] if self.halted(context) else lanes_of(context)
        return [done for lane in lanes if lane["pipe"] and (done := lane["pipe"][0][0]) > lane["at"] + EARLY]

    def size(self, model_id: int, flow: int, *, output: bool, unknown: Status) -> Any:
        refuse(0 <= model_id < 32, Status.BAD_ENGINE)
        crash(model_id not in self.contexts)
        lane = self.lane(self.contexts[model_id], flow, output=output)
        refuse(lane is not None, unknown)
        return lane

    def flow(self, model_id: int, flow: int, timeout: int, *, output: bool, null: bool) -> tuple[Table, Any]:
        context = self.context(model_id)
        refuse(context["load"] is None or 0 <= flow < 32, Status.BAD_FLOW_ID)
        lane = self.lane(context, flow, output=output)
        side = Status.OUTPUT_FLOW_NOT_CONFIGURED if output else Status.INPUT_FLOW_NOT_CONFIGURED
        refuse(lane is not None, side)
        refuse(not null, Status.NULL_POINTER)
        refuse(0 <= timeout < 21_474_836, Status.BAD_ARGUMENT)
        return context, lane

    def push(self, model_id: int, flow: int, frame: bytes, timeout: int, *, null: bool) -> None:
        context, lane = self.flow(model_id, flow, timeout, output=False, null=null)
        if context["activity"] != "paused":
            self.check_placed(context)
        ring = lane["ins"][flow]
        room = lane["slots"][0] - 1
        refuse(self.wait(context, timeout, lambda: len(ring) < room), Status.INPUT_TIMEOUT)
        ring.append((frame, None))

    def pull(self, model_id: int, flow: int, timeout: int, *, null: bool) -> bytes | None:
        """Return the frame's bytes; None where the chips have wrong weights, and they are anybody's guess."""
        context, lane = self.flow(model_id, flow, timeout, output=True, null=null)
        refuse(self.wait(context, timeout, lambda: lane["outs"][flow]), Status.OUTPUT_TIMEOUT)
        return self.answer(lane, flow)

    def borrow(self, model_id: int, flow: int, timeout: int, *, output: bool) -> tuple[Any, bytes | None]:
        """Take a buffer; return its loan, and the frame that lies in it."""
        self.context(model_id)
        refuse(self.downloaded, Status.NOTHING_DOWNLOADED)
        context, lane = self.flow(model_id, flow, timeout, output=output, null=False)
        key, count = (int(output), flow), lane["slots"][output]

        def free() -> bool:
            used = lane["lent"][key] + (0 if output else sum(1 for _, lent in lane["ins"][flow] if lent))
            return used < count and (not output or bool(lane["outs"][flow]))

        late = Status.DEQUEUE_OUTPUT_TIMEOUT if output else Status.DEQUEUE_INPUT_TIMEOUT
        refuse(self.wait(context, timeout, free), late)
        frame = self.answer(lane, flow) if output else None
        lane["lent"][key] += 1
        return {"lane": lane, "key": key, "open": True}, frame

    def give(self, model_id: int, flow: int, loan: Any, frame: bytes, *, output: bool) -> None:
        self.context(model_id)
        refuse(self.downloaded, Status.NOTHING_DOWNLOADED)
        context, lane = self.flow(model_id, flow, 1, output=output, null=False)
        key = (int(output), flow)
        mine = loan and loan["open"] and loan["lane"] is lane and loan["key"] == key
        refuse(mine, Status.BAD_ENGINE)
        if not output and context["activity"] != "paused":
            self.check_placed(context)
        loan["open"] = False
        lane["lent"][key] -= 1
        if not output:
            lane["ins"][flow].append((frame, loan))

    def lane(self, context: Table, flow: int, *, output: bool) -> Table | None:
        return next((lane for lane in lanes_of(context) if flow in lane["outs" if output else "ins"]), None)

    def answer(self, lane: Table, flow: int) -> bytes | None:
        frames = lane["outs"][flow].pop(0)
        sizes = lane["net"]["outs"]
        if lane["spoiled"]:
            return None
        return hash_answer(lane["net"]["name"], frames, list(sizes.values()))[list(sizes).index(flow)]

    # -- time

    def wait(self, context: Table, timeout: int, ready: Any) -> bool:
        """Move the clock until it is so, at a look, or until the time-out."""
        begin = self.now
        deadline = begin + timeout / 1e3 * self.factor if timeout else math.inf
        while not ready():
            look = self.look(begin, self.next_event(context))
            if min(look, deadline) == math.inf:
                raise Stuck
            self.advance(min(look, deadline))
            if look >= deadline - EARLY:
                return bool(ready())
        return True

    def look(self, begin: float, event: float) -> float:
        if not self.step or event == math.inf:
            return event
        return begin + math.ceil((event - begin) / self.step - 1e-4) * self.step

    def advance(self, now: float) -> None:
        for context in self.contexts.values():
            while self.next_event(context) <= now + EARLY:
                self.happen(context)
            for lane in lanes_of(context):
                lane["at"] = now
            self.settle(context)
        self.now = now

    def settle(self, context: Table) -> None:
        lanes = lanes_of(context)
        moving = any(
            lane["pipe"] and (lane["pipe"][0][0] > lane["at"] + EARLY or self.room(lane)) for lane in lanes
        )
        if context["activity"] == "draining" and not moving and not self.stuck(context):
            context["activity"] = "paused"

    def next_event(self, context: Table) -> float:
        if context["load"] is None or self.halted(context):
            return math.inf
        return min(min(self.moments(context, lane)) for lane in context["load"]["lanes"])

    def moments(self, context: Table, lane: Table) -> tuple[float, float]:
        """Return when a frame leaves the pipeline, and when one enters."""
        leave = enter = math.inf
        if context["activity"] != "paused" and lane["pipe"] and self.room(lane):
            leave = max(lane["pipe"][0][0], lane["at"])
        if context["activity"] == "running" and all(lane["ins"].values()) and len(lane["pipe"]) < self.depth:
            enter = max(lane["next"], lane["at"])
        return leave, enter

    def happen(self, context: Table) -> None:
        lane = min(context["load"]["lanes"], key=lambda lane: min(self.moments(context, lane)))
        leave, enter = self.moments(context, lane)
        lane["at"] = moment = min(leave, enter)
        if leave <= enter:
            _, frames = lane["pipe"].pop(0)
            for ring in lane["outs"].values():
                ring.append(frames)
        else:
            pace = context["group"]["pace"]
            frames = [ring.pop(0)[0] for ring in lane["ins"].values()]
            lane["pipe"].append((moment + lane["net"]["latency"] * pace, frames))
            lane["next"] = moment + lane["net"]["interval"] * pace

    def room(self, lane: Table) -> bool:
        return all(
            len(ring) < lane["slots"][1] - 1 - lane["lent"][1, flow] for flow, ring in lane["outs"].items()
        )

    # -- what the vendor leaves undefined

    def halted(self, context: Table) -> bool:
        return context["aborted"] or bool(context["group"]["halts"])

    def stuck(self, context: Table) -> bool:
        halts = context["group"]["halts"]
        return "hung" in halts or ("gone" in halts and context["activity"] != "paused" and self.fed(context))

    def fed(self, context: Table) -> bool:
        lanes = lanes_of(context)
        return any(ring for lane in lanes for ring in lane["ins"].values())

    def check_quiet(self, context: Table) -> None:
        lanes = [] if self.halted(context) else lanes_of(context)
        crash(any(lane["pipe"] or any(lane["outs"].values()) for lane in lanes))
        crash(lanes and context["activity"] == "running" and self.fed(context))

    def check_idle(self, group: Table) -> None:
        for context in self.on(group):
            self.check_quiet(context)

    def check_disabled(self, contexts: Iterable[Table]) -> None:
        for context in contexts:
            crash(context["load"] and context["activity"] != "paused" and not self.halted(context))

    def check_unfed(self, context: Table) -> None:
        crash(not self.halted(context) and self.fed(context))

    def check_placed(self, context: Table) -> None:
        if self.halted(context):
            return
        crash(context["unbound"])
        load, group = context["load"], context["group"]
        crash(load and (group["resident"] is not load or group["weights"] != load["file"]))
