"""The contexts that a group serves, and what the policy sees of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from repertory.models.program import Network, Program

from .context import ModelContext
from .policy import Entry, GroupState

__all__ = ["Tenant", "Tenants"]


@final
@dataclass(slots=True, eq=False)
class Tenant:
    """A context on this group, and what the policy sees of it."""

    context: ModelContext
    entry: Entry
    network: Network | None = None  # what runs in place of the frames' own, after a replacement


@final
class Tenants:
    """Keeps `state.entries`.

    Attributes:
        by_context: tenants by their contexts, in the order they came.
        by_entry: the same by what the policy sees.

    Args:
        state: the group's.
    """

    def __init__(self, state: GroupState) -> None:
        self.by_context: dict[ModelContext, Tenant] = {}
        self.by_entry: dict[Entry, Tenant] = {}
        self._state = state

    def add(self, context: ModelContext, program: Program) -> Entry:
        """Serve a context by this program from now on."""
        entry = Entry(context.state, program)
        self.by_context[context] = self.by_entry[entry] = Tenant(context, entry)
        self._state.entries.append(entry)
        self._state.by_context[entry.context] = entry
        self._state.by_program.setdefault(program.key, []).append(entry)
        return entry

    def pop(self, context: ModelContext) -> Entry | None:
        """Serve a context no more; return what the policy saw of it, or None where it was not served."""
        tenant = self.by_context.pop(context, None)
        if tenant is None:
            return None
        del self.by_entry[tenant.entry]
        self._state.entries.remove(tenant.entry)
        del self._state.by_context[tenant.entry.context]
        self._uses_no_more(tenant.entry)
        return tenant.entry

    def entry(self, context: ModelContext) -> Entry | None:
        """What the policy sees of a context here, or None where this group does not serve it."""
        tenant = self.by_context.get(context)
        return None if tenant is None else tenant.entry

    def replace(self, context: ModelContext, program: Program, network: Network) -> Program:
        """Serve later frames of a context by this network of another program; return the one it had."""
        tenant = self.by_context[context]
        tenant.network = network
        self._uses_no_more(tenant.entry)
        before, tenant.entry.program = tenant.entry.program, program
        self._state.by_program.setdefault(program.key, []).append(tenant.entry)
        return before

    def _uses_no_more(self, entry: Entry) -> None:
        users = self._state.by_program[entry.program.key]
        users.remove(entry)
        if not users:
            del self._state.by_program[entry.program.key]

    def of(self, program: Program) -> Iterator[ModelContext]:
        """The contexts that are served by this program."""
        return (each.context for each in self.by_entry.values() if each.entry.program.key == program.key)
