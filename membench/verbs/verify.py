"""What `membench verify` does: records checked against their weights, and those that are true marked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from membench.engine.execution import Execution, available_cores
from membench.execute.progress import counting
from membench.interface.registry import Registry, Selection
from membench.verify.marks import Mark, remove_marks, write_marks
from membench.verify.submission import check_manifest
from membench.verify.verdict import FAILED, VERIFIED, Verdict, record_files

if TYPE_CHECKING:
    from membench.verify.retrain import Repeat


@dataclass(frozen=True)
class Verification:
    """A verdict on each record, and on each point that was trained again."""

    verdicts: Sequence[Verdict]
    repeats: Sequence[Repeat]
    salt: str  # that the seeds of the repeats come from

    @property
    def marks(self) -> list[Mark]:
        """Of records that are true, and whose point could be trained again if that was asked for."""
        doubtful = {one.id for one in self.repeats if one.outcome == FAILED}
        return [
            Mark(one.entry, one.metrics, one.size, one.bounds)
            for one in self.verdicts
            if one.entry and one.outcome == VERIFIED and one.entry.record.id not in doubtful
        ]

    @property
    def outcomes(self) -> set[str]:
        return {*(one.outcome for one in self.verdicts), *(one.outcome for one in self.repeats)}


def verify(
    folder: Path,
    selection: Selection,
    *,
    retrain: bool = False,
    salt: str | None = None,
    key: Path | None = None,
    jobs: int | None = None,
    timeout: float,
    show: bool = True,
) -> Verification:
    """Rebuild each model in processes of its own and ask it every fact again; marks go into FOLDER/verified.json.

    Whatever marks there were are removed first: if this ends early, nothing counts as verified.
    """
    from membench.verify.verdict import verify as check

    paths = record_files(folder)
    remove_marks(folder)
    undeclared = check_manifest(folder, paths)
    with counting(len(paths), "records verified", show) as advance:
        verdicts = check(paths, selection, jobs or available_cores(), timeout, lambda verdict: advance())
    verdicts = [_unlike_manifest(one, undeclared) for one in verdicts]
    verdicts += [Verdict(path, FAILED, reason) for path, reason in undeclared.items() if path not in paths]
    salt = secrets.token_hex(8) if salt is None else salt
    repeats = _trained_again(verdicts, selection, salt, Execution(jobs=jobs), timeout, show) if retrain else []
    verification = Verification(verdicts, repeats, salt)
    write_marks(folder, verification.marks, key)
    return verification


def _unlike_manifest(verdict: Verdict, undeclared: dict[Path, str]) -> Verdict:
    if verdict.outcome == FAILED or verdict.path not in undeclared:
        return verdict
    return Verdict(verdict.path, FAILED, undeclared[verdict.path], verdict.entry)


def _trained_again(
    verdicts: Sequence[Verdict], selection: Selection, salt: str, execution: Execution, timeout: float, show: bool
) -> list[Repeat]:
    from membench.verify.retrain import plan_repeats, repeat

    return repeat(plan_repeats(verdicts, salt, Registry(selection.built_ins())), selection, execution, timeout, show)
