"""What the board does not take: rows that could be first with a worthless model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from samples import make_record

from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.execute.driver import execute
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.plan.trial import Point
from membench.records.pack import Packed, write_pack
from membench.records.record import Record
from membench.records.store import Entry, Store, read
from membench.verbs.verify import IN_A_PACK, Verification
from membench.verbs.verify import verify as verify_folder
from membench.verify.marks import MARKS, with_marks, write_marks
from membench.verify.retrain import Repeat
from membench.verify.submission import MANIFEST
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict
from membench_leaderboard import publish as publishing
from membench_leaderboard.frame import to_frame
from membench_leaderboard.gather import read_entries
from membench_leaderboard.publish import refuse_doubtful
from membench_leaderboard.published import BOARD, PAPER, published_entries
from membench_leaderboard.rows import summarise

METRICS = {"accuracy": 1.0, "kl": 0.0, "bits": 100.0}


def _made_up(**more: Any) -> Record:
    """Perfect, and nobody has seen its weights."""
    record = make_record(metrics=METRICS, **more)
    return replace(record, id=Point.of(record).id)


def _publish(
    folder: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch, source: str = BOARD
) -> BaseException | None:
    (checkout / "docs").mkdir(parents=True)
    (checkout / "pyproject.toml").touch()
    monkeypatch.setattr(publishing, "CHECKOUT", checkout)
    monkeypatch.setattr(publishing, "HERE", checkout / "published")
    monkeypatch.setattr(
        publishing, "published_entries", lambda s=BOARD, r=checkout / "published": published_entries(s, r)
    )
    return CliRunner().invoke(publishing.main, [str(folder), "--source", source]).exception


@pytest.mark.parametrize("packed", [False, True])
def test_made_up_records_without_weights_are_not_for_the_board(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file, or in a pack beside a record that is verified."""
    folder = tmp_path / "results"
    if packed:
        registry = Registry(Selection().built_ins())
        (trial,) = plan(registry, Request(["lookup"], ["bigram"], [], ["N=4"], "converged", ["steps=5"], (1,)))
        execute([trial], Store(folder), registry, Execution(executor="inline", keep_weights=True))
        write_pack(folder / "more.jsonl", [Packed(_made_up(), verified=True)])
    else:
        folder.mkdir()
        (folder / "a.json").write_text(_made_up().to_json())
    error = _publish(folder, tmp_path / "checkout", monkeypatch)
    assert isinstance(error, UsageError)
    assert "was not verified, and the board shows what was" in str(error)
    assert ("more.jsonl" if packed else "a.json") in str(error)
    assert not (tmp_path / "checkout" / "published").exists()
    if not packed:
        assert _publish(folder, tmp_path / "paper", monkeypatch, PAPER) is None
        (one,) = published_entries(PAPER, tmp_path / "paper" / "published")
        assert not one.verified


def test_a_pack_is_named_where_nothing_in_it_can_be_verified(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(_made_up().to_json())
    write_pack(tmp_path / "more.jsonl", [Packed(_made_up(seed=7), verified=True)])
    selection = Selection().built_ins()
    verdicts = verify_folder(tmp_path, selection, timeout=60, show=False).verdicts
    assert [(one.path.name, one.outcome) for one in verdicts] == [("a.json", UNCHECKED), ("more.jsonl", UNCHECKED)]
    assert verdicts[1].reason == IN_A_PACK
    (tmp_path / MANIFEST).write_text('{"format": 1, "files": []}')
    verdicts = verify_folder(tmp_path, selection, timeout=60, show=False).verdicts
    assert [one.outcome for one in verdicts] == [FAILED, FAILED]  # a submission is what its manifest lists


def _marked(folder: Path, name: str, outcomes: list[str]) -> Entry:
    """A record of an architecture, as its folder has it after it was verified, and perhaps trained again."""
    record = make_record(metrics=METRICS)
    # what a record says of its own distribution is not believed
    record = replace(record, architecture={**record.architecture, "name": name, "distribution": "membench"})
    record = replace(record, id=Point.of(record).id)
    (folder / "a.json").write_text(record.to_json())
    entry = read(folder / "a.json")
    verdict = Verdict(folder / "a.json", VERIFIED, "", entry, record.metrics, record.size, record.bounds)
    repeats = [Repeat(Point.of(record), (1,), (verdict,), outcome) for outcome in outcomes]
    built_in = Registry(Selection().built_ins()).architectures
    write_marks(folder, Verification([verdict], repeats, "salt", built_in).marks)
    return with_marks([entry], [folder])[0][0]


@pytest.mark.parametrize(
    ("name", "outcomes", "words"),
    [
        ("aot", [], "verified, unsigned"),
        ("theirs", [], "verified, not retrained"),
        ("theirs", [UNCHECKED], "verified, not retrained"),
        ("theirs", [FAILED], "self-reported"),
        ("theirs", [VERIFIED], "verified, unsigned"),
    ],
)
def test_a_plugin_is_verified_when_training_it_again_confirms_it(
    name: str, outcomes: list[str], words: str, tmp_path: Path
) -> None:
    one = _marked(tmp_path, name, outcomes)
    assert list(summarise(to_frame([one]))["verification"]) == [words]
    if words == "verified, unsigned":
        refuse_doubtful([one])
    else:
        with pytest.raises(UsageError, match=r"did not confirm it|was not verified"):
            refuse_doubtful([one])


@pytest.mark.parametrize("told", ["0", "1", '"yes"', "{}"])
def test_a_mark_that_says_nothing_clear_is_no_training(told: str, tmp_path: Path) -> None:
    _marked(tmp_path, "theirs", [VERIFIED])
    marks = tmp_path / MARKS
    marks.write_text(marks.read_text().replace('"retrained": true', f'"retrained": {told}'))
    ((one,), _) = read_entries([tmp_path])
    assert one.retrained is False
