"""What `membench verify` does: records checked against their weights, and those that are true marked."""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from membench.engine.execution import Execution, available_cores
from membench.execute.progress import counting
from membench.interface.registry import Registry, Selection
from membench.records.record import Record
from membench.records.store import Store
from membench.verify.marks import Mark, remove_marks, write_marks
from membench.verify.submission import check_manifest
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict, record_files

if TYPE_CHECKING:
    from membench.verify.retrain import Repeat


IN_A_PACK = "a pack has no weights beside its records; verify the folder that it was made of"


@dataclass(frozen=True)
class Verification:
    """A verdict on each record, and on each point that was trained again."""

    verdicts: Sequence[Verdict]
    repeats: Sequence[Repeat]
    salt: str  # that the seeds of the repeats come from
    built_in: Container[str] = ()  # names of the architectures that are no plugin's

    @property
    def marks(self) -> list[Mark]:
        """Of records that are true, and whose point could be trained again if that was asked for."""
        outcomes = {one.id: one.outcome for one in self.repeats}
        return [
            Mark(one.entry, one.metrics, one.size, one.bounds, self._retrained(one.entry.record, outcomes))
            for one in self.verdicts
            if one.entry and one.outcome == VERIFIED and outcomes.get(one.entry.record.id) != FAILED
        ]

    def _retrained(self, record: Record, outcomes: Mapping[str, str]) -> bool | None:
        """By its name, which was verified, and not by what it says of its distribution."""
        return None if record.architecture["name"] in self.built_in else outcomes.get(record.id) == VERIFIED

    @property
    def outcomes(self) -> set[str]:
        return {*(one.outcome for one in self.verdicts), *(one.outcome for one in self.repeats)}


def verify(
    folder: Path,
    selection: Selection,
    *,
    retrain: bool = False,
    retrain_plugins: bool = False,
    points: int | None = None,
    salt: str | None = None,
    key: Path | None = None,
    jobs: int | None = None,
    timeout: float,
    show: bool = True,
) -> Verification:
    """Rebuild each model in processes of its own and ask it every fact again; marks go into FOLDER/verified.json.

    `retrain` is for all points, `retrain_plugins` for those whose architecture is a plugin's; of these, `points` many
    are drawn by the salt, by default all of them.
    Whatever marks there were are removed first: if this ends early, nothing counts as verified.
    """
    from membench.verify.verdict import verify as check

    paths = record_files(folder)
    remove_marks(folder)
    packs = Store(folder).packs()
    undeclared = check_manifest(folder, [*paths, *packs])
    with counting(len(paths), "records verified", show) as advance:
        verdicts = check(paths, selection, jobs or available_cores(), timeout, lambda verdict: advance())
    verdicts = [_unlike_manifest(one, undeclared) for one in verdicts]
    verdicts += [Verdict(path, UNCHECKED, IN_A_PACK) for path in packs if path not in undeclared]
    verdicts += [Verdict(path, FAILED, reason) for path, reason in undeclared.items() if path not in paths]
    salt = secrets.token_hex(8) if salt is None else salt
    built_in = Registry(selection.built_ins()).architectures
    foreign = [one for one in verdicts if one.record and one.record.architecture["name"] not in built_in]
    chosen = verdicts if retrain else foreign if retrain_plugins else []
    execution = Execution(jobs=jobs)
    repeats = _trained_again(chosen, selection, salt, points, execution, timeout, show) if chosen else []
    verification = Verification(verdicts, repeats, salt, built_in)
    write_marks(folder, verification.marks, key)
    return verification


def _unlike_manifest(verdict: Verdict, undeclared: dict[Path, str]) -> Verdict:
    if verdict.outcome == FAILED or verdict.path not in undeclared:
        return verdict
    return Verdict(verdict.path, FAILED, undeclared[verdict.path], verdict.entry)


def _trained_again(
    verdicts: Sequence[Verdict],
    selection: Selection,
    salt: str,
    points: int | None,
    execution: Execution,
    timeout: float,
    show: bool,
) -> list[Repeat]:
    from membench.verify.retrain import drawn, plan_repeats, repeat

    planned = plan_repeats(verdicts, salt, Registry(selection.built_ins()))
    chosen = planned if points is None else drawn(planned, salt, points)
    return repeat(chosen, selection, execution, timeout, show)
