"""What `membench verify` does: records checked against their weights, and those that are true marked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from membench.engine.execution import Execution, available_cores
from membench.execute.progress import counting, watching
from membench.interface.registry import Registry
from membench.records.store import Entry
from membench.verify.marks import write_marks
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
    def verified(self) -> list[Entry]:
        """Records that are true, and whose point could be trained again if that was asked for."""
        doubtful = {one.id for one in self.repeats if one.outcome == FAILED}
        true = [one.entry for one in self.verdicts if one.entry and one.outcome == VERIFIED]
        return [entry for entry in true if entry.record.id not in doubtful]

    @property
    def failed(self) -> bool:
        return FAILED in {*(one.outcome for one in self.verdicts), *(one.outcome for one in self.repeats)}


def verify(
    folder: Path,
    registry: Registry,
    *,
    retrain: bool,
    salt: str | None,
    jobs: int | None,
    timeout: float,
    show: bool = True,
) -> Verification:
    """Rebuild each model in processes of its own and ask it every fact again; marks go into FOLDER/verified.json."""
    from membench.verify.verdict import verify as check

    paths = record_files(folder)
    with counting(len(paths), "records verified", show) as advance:
        verdicts = check(paths, registry, jobs or available_cores(), timeout, lambda verdict: advance())
    salt = secrets.token_hex(8) if salt is None else salt
    repeats = _trained_again(verdicts, registry, salt, Execution(jobs=jobs), timeout, show) if retrain else []
    verification = Verification(verdicts, repeats, salt)
    write_marks(folder, verification.verified)
    return verification


def _trained_again(
    verdicts: Sequence[Verdict], registry: Registry, salt: str, execution: Execution, timeout: float, show: bool
) -> list[Repeat]:
    from membench.verify.retrain import plan_repeats, repeat

    pending = plan_repeats(verdicts, registry, salt)
    with watching(sum(one.trial is not None for one in pending), show) as watcher:
        return repeat(pending, registry, execution, timeout, watcher)
