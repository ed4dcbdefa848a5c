from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import make_record

from membench.errors import UsageError
from membench.records.store import read
from membench.verify.marks import Mark, write_marks
from membench_leaderboard.gather import gather, read_entries
from membench_leaderboard.published.compact import compact


def write(path: Path, **changes: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make_record(**changes).to_json(), encoding="utf-8")
    return path


def test_folders_single_records_and_compact_files_are_read(tmp_path: Path) -> None:
    one = write(tmp_path / "folder" / "deep" / "a.json", seed=0)
    other = write(tmp_path / "b.json", seed=1)
    (tmp_path / "c.jsonl").write_text(compact([make_record(seed=2)]))
    found, problems = read_entries([tmp_path / "folder", other, tmp_path / "c.jsonl"])
    assert [(e.record.seed, e.source, e.published) for e in found] == [
        (0, str(one), False), (1, str(other), False), (2, str(tmp_path / "c.jsonl"), False),
    ]  # fmt: skip
    assert problems == []


def test_other_files_in_a_folder_are_named_and_one_that_is_asked_for_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    foreign, binary = tmp_path / "foreign.json", tmp_path / "image.json"
    foreign.write_text('{"a": ')
    binary.write_bytes(b"\xff\xfe\x00")
    found, problems = read_entries([tmp_path])
    assert len(found) == 1
    assert ["foreign.json" in problems[0], "image.json" in problems[1]] == [True, True]
    for path in (foreign, binary):
        with pytest.raises(UsageError, match=f"{path.name}' is not a record"):
            read_entries([path])
    with pytest.raises(UsageError, match="does not exist; records are written by"):
        read_entries([tmp_path / "nowhere"])


def test_two_records_of_one_trial_that_disagree_are_refused_with_both_names(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    write(tmp_path / "copy.json")
    assert len(read_entries([tmp_path])[0]) == 2  # copies are fine
    write(tmp_path / "b.json", metrics={"accuracy": 0.75})
    with pytest.raises(UsageError, match=r"a.json' and '.*b.json' are records of one trial \(abc, seed 0\)"):
        read_entries([tmp_path])


def test_a_failed_try_contradicts_nobody(tmp_path: Path) -> None:
    write(tmp_path / "a.json", status="failed", metrics={})
    write(tmp_path / "b.json")
    assert len(read_entries([tmp_path])[0]) == 2


def test_records_that_were_verified_say_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json")
    write(tmp_path / "b.json", seed=1)
    entry = read(path)
    write_marks(tmp_path, [Mark(entry, entry.record.metrics, entry.record.size, entry.record.bounds)])
    found, problems = read_entries([tmp_path])
    assert {e.record.seed: e.verified for e in found} == {0: True, 1: False}
    assert problems == []


def test_a_compact_file_cannot_call_itself_verified(tmp_path: Path) -> None:
    lines = compact([make_record()]).splitlines()
    lines[-1] = json.dumps({**json.loads(lines[-1]), "verified": True})
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    assert not read_entries([tmp_path / "c.jsonl"])[0][0].verified


def test_what_came_with_the_package_comes_first_unless_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from membench.records.store import Entry
    from membench_leaderboard import gather as sources

    monkeypatch.setattr(sources, "published_entries", lambda: [Entry(make_record(seed=9), published=True)])
    write(tmp_path / "a.json")
    assert [e.published for e in gather([tmp_path])[0]] == [True, False]
    assert [e.published for e in gather([tmp_path], published=False)[0]] == [False]
