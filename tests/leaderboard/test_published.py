from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from samples import make_record

from membench.errors import UsageError
from membench.plan.trial import Point
from membench.records.record import Record
from membench.records.store import Entry, read
from membench.verify.marks import Mark, write_marks
from membench_leaderboard import publish as publishing
from membench_leaderboard.markdown import leaderboard_document
from membench_leaderboard.publish import publish, publishable, refuse_worse
from membench_leaderboard.published import BOARD, PAPER, published_entries
from membench_leaderboard.published.compact import compact, expand

ROOT = Path(__file__).parents[2]
QUICK = {"name": "quick", "version": 1, "config": {}, "label": ""}


def samples() -> list[Record]:
    choice = {"lr": 0.01, "tried": [{"lr": lr, "score": 1 / lr} for lr in (0.003, 0.01, 0.03)]}
    return [
        make_record(
            id=f"{name}{size}",
            seed=seed,
            architecture={"name": name, "config": {"d": size}, "label": f"d={size}"},
            metrics={"accuracy": 1 / (3 + seed), "kl": None, "bits": 1e-17},
            size={"parameters": size},
            trace={"converged": True, "steps": 7, "choice": choice, "rounds": [{"curve": [0.1] * 40}]},
            environment={"membench": "0.1.0", "cpu": "ä"},
            run={"started": "2026-01-01", "seconds": 0.1 + seed},
        )
        for name in ("aot", "lookup")
        for size in (100, 200)
        for seed in range(3)
    ]


def plain(record: Record) -> Any:
    data = json.loads(record.to_json())
    data["trace"] = {name: value for name, value in data["trace"].items() if name not in ("rounds", "curve")}
    return data


def test_all_but_the_curves_can_be_had_back() -> None:
    back = expand(compact(samples()), "x")
    assert [plain(entry.record) for entry in back] == [plain(record) for record in samples()]
    assert all(entry.published and not entry.verified for entry in back)


def test_the_text_depends_on_the_records_and_not_on_their_order() -> None:
    assert compact(reversed(samples())) == compact(samples())
    assert compact(entry.record for entry in expand(compact(samples()), "x")) == compact(samples())


def test_a_new_record_adds_lines_and_changes_none() -> None:
    before, after = (set(compact(some).splitlines()) for some in (samples()[:-1], samples()))
    assert before - {'{"records":11}'} < after


def test_what_records_share_is_stored_once() -> None:
    text = compact(samples())
    assert text.count("ä") == 1
    assert text.count('"tried"') == 1
    assert "curve" not in text


def test_failed_records_are_not_stored_and_marks_of_verification_are() -> None:
    failed = make_record(id="f", status="failed", error="no")
    (entry,) = expand(compact([Entry(make_record(), verified=True), failed]), "x")
    assert entry.verified
    assert entry.record.complete


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a pack"),
        ("[1]\n", "is not a pack"),
        ('{"membench-published":1}\n{"id":"a"}\n', "is damaged"),
        ('{"membench-published":1}\n{"id":', "is damaged"),
        ('{"membench-published":99}\n', "newer membench"),
    ],
)
def test_a_damaged_or_newer_file_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        expand(text, "x.jsonl")


def test_publishing_adds_replaces_and_starts_afresh(tmp_path: Path) -> None:
    old = [Entry(record) for record in samples()]
    publish(old, BOARD, tmp_path)
    new = Entry(make_record(id="aot100", seed=0, metrics={"accuracy": 0.75}))
    publish([new], BOARD, tmp_path)
    back = {(e.record.id, e.record.seed): e.record for e in published_entries(BOARD, tmp_path)}
    assert len(back) == len(old)
    assert back["aot100", 0].metrics["accuracy"] == 0.75
    ngram = Entry(make_record(task={"name": "ngram", "version": 1, "config": {}}))
    assert [path.name for path in publish([ngram], BOARD, tmp_path, fresh=True)] == ["ngram.jsonl"]
    assert len(published_entries(BOARD, tmp_path)) == 1
    assert published_entries(PAPER, tmp_path) == []


def _scored(seeds: range, accuracy: float, verified: bool = True) -> list[Entry]:
    scores = [{"accuracy": accuracy + seed / 1e4, "bits": 100 * accuracy} for seed in seeds]
    records = [make_record(seed=seed, metrics=metrics) for seed, metrics in zip(seeds, scores, strict=True)]
    return [Entry(record, "a.json", verified=verified) for record in records]


def test_nobody_pulls_a_published_point_down() -> None:
    """Weights of zeros under a rival's name are true records, and would lower the mean that the rival is ranked by."""
    published = _scored(range(5), 0.7)
    with pytest.raises(UsageError, match=r"'a.json', are worse than the published ones: accuracy is 0.00\d+ on 5 new"):
        refuse_worse(_scored(range(5, 10), 0.0), published)
    with pytest.raises(UsageError, match="are not all verified, and the published ones are"):
        refuse_worse(_scored(range(1), 0.9, verified=False), published)
    with pytest.raises(UsageError, match="are worse"):
        refuse_worse(_scored(range(1), 0.5), published[:1])
    refuse_worse(_scored(range(5, 8), 0.7), published)
    refuse_worse(_scored(range(3), 0.0), [replace(one, record=replace(one.record, id="other")) for one in published])


def test_what_is_never_ranked_is_never_published() -> None:
    found = [Entry(one) for one in (make_record(), make_record(protocol=QUICK), make_record(status="failed"))]
    chosen, left_out = publishable(found)
    assert (chosen, left_out) == (found[:1], 2)


def test_a_task_cannot_choose_where_its_file_goes(tmp_path: Path) -> None:
    evil = Entry(make_record(task={"name": "../x", "version": 1, "config": {}}), "here.json")
    with pytest.raises(UsageError, match=r"'here.json' is about a task called '../x'"):
        publish([evil], BOARD, tmp_path)


def _with_its_own_id(record: Record) -> Record:
    return replace(record, id=Point.of(record).id)


def test_a_record_that_fails_verification_stops_publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "forged.json").write_text(make_record(id="forged").to_json())
    monkeypatch.setattr(publishing, "CHECKOUT", tmp_path)
    monkeypatch.setattr(publishing, "HERE", tmp_path / "published")
    done = CliRunner().invoke(publishing.main, [str(tmp_path / "results")])
    assert isinstance(done.exception, UsageError)
    assert "1 of 1 records" in str(done.exception)
    assert "its id is forged" in str(done.exception)
    assert not (tmp_path / "published").exists()


def _mark(folder: Path) -> None:
    """As if all of its records had been verified."""
    found = [read(path) for path in folder.glob("*.json")]
    write_marks(folder, [Mark(one, one.record.metrics, one.record.size, one.record.bounds) for one in found])


def test_the_script_writes_the_files_and_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    results = tmp_path / "results"
    results.mkdir()
    for record in samples():
        (results / f"{record.id}-s{record.seed}.json").write_text(_with_its_own_id(record).to_json())
    monkeypatch.setattr(publishing, "CHECKOUT", tmp_path)
    monkeypatch.setattr(publishing, "HERE", tmp_path / "published")
    monkeypatch.setattr(
        publishing, "published_entries", lambda s=BOARD, r=tmp_path / "published": published_entries(s, r)
    )
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(publishing, "_verify", lambda folder, plugins: _mark(folder))
    done = CliRunner().invoke(publishing.main, [str(results)])
    assert done.exit_code == 0, done.output
    assert "12 records published, 0 left out" in done.output
    document = (tmp_path / "docs" / "board.md").read_text("utf-8")
    assert "12 trials of 4 models in 1 table" in document
    assert "| aot" in document


def test_the_document_is_the_one_that_the_published_records_make() -> None:
    written = (ROOT / "docs" / "board.md").read_text("utf-8")
    assert written == leaderboard_document(published_entries()), "run: python -m membench_leaderboard.publish"


def test_the_published_board_can_be_read_and_has_only_what_is_ranked() -> None:
    for source in (BOARD, PAPER):
        found = published_entries(source)
        assert len({(one.record.id, one.record.seed) for one in found}) == len(found)
        assert publishable(found)[1] == 0


def test_a_document_without_records_says_so() -> None:
    assert "No records are published yet" in leaderboard_document([])
    assert "No records are published yet" in leaderboard_document([make_record(protocol=QUICK)])
