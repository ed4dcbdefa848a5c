from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from samples import make_record

from membench.commands.results import results
from membench.errors import MembenchError, UsageError
from membench.plan.trial import Point
from membench.records.record import Record
from membench.records.store import Store
from membench.verbs.load import load
from membench.verbs.results import merge, pack


def record(**changes: Any) -> Record:
    one = make_record(**changes)
    return replace(one, id=Point.of(one).id)


def write(folder: Path, one: Record, weights: bytes | None = None) -> Path:
    path = Store(folder).place(Point.of(one), one.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    if weights is not None:
        named = {"file": f"{path.stem}.safetensors", "sha256": hashlib.sha256(weights).hexdigest(), "bytes": 1}
        one = replace(one, weights=named)
        path.with_suffix(".safetensors").write_bytes(weights)
    path.write_text(one.to_json())
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(results, [str(word) for word in words])


def test_two_folders_become_one_with_their_weights(tmp_path: Path) -> None:
    a = write(tmp_path / "a", record(seed=0), b"weights")
    write(tmp_path / "a", record(seed=1))
    write(tmp_path / "b", record(seed=1))
    write(tmp_path / "b", record(seed=2))
    merged = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert (merged.added, merged.there, merged.weights, merged.problems, merged.conflicts) == (3, 1, 1, [], [])
    assert names(tmp_path / "all") == sorted({*names(tmp_path / "a"), *names(tmp_path / "b")})
    place = tmp_path / "all" / a.relative_to(tmp_path / "a")
    assert place.read_bytes() == a.read_bytes()
    assert place.with_suffix(".safetensors").read_bytes() == b"weights"
    again = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert (again.added, again.there, again.weights) == (0, 4, 0)


def test_a_conflict_is_named_and_nothing_is_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "a", record(seed=0))
    b = write(tmp_path / "b", record(seed=0, metrics={"accuracy": 0.75}))
    write(tmp_path / "b", record(seed=1))
    done = invoke("merge", tmp_path / "a", tmp_path / "b", "--into", tmp_path / "all")
    assert isinstance(done.exception, MembenchError)
    assert done.exception.exit_code == 3
    assert f"{b}: '{tmp_path / 'a'}" in done.output
    assert "has other numbers for the same trial" in done.output
    assert sorted(one.metrics["accuracy"] for one in load(tmp_path / "all").records) == [0.5, 0.5]


def test_another_machine_may_have_other_last_digits(tmp_path: Path) -> None:
    write(tmp_path / "a", record(environment={"cpu": "one"}))
    metrics = {**make_record().metrics, "accuracy": 0.505}
    write(tmp_path / "b", record(environment={"cpu": "another"}, metrics=metrics))
    merged = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert (merged.added, merged.there, merged.conflicts) == (1, 1, [])
    assert len(load(tmp_path / "a", tmp_path / "b")) == 2  # the board takes them too


def test_success_takes_the_place_of_a_failed_try_and_never_the_other_way_round(tmp_path: Path) -> None:
    write(tmp_path / "a", record(status="failed", error="no", metrics={}))
    write(tmp_path / "b", record())
    for order in (["a", "b"], ["b", "a"]):
        into = tmp_path / "-".join(order)
        merge([tmp_path / name for name in order], into)
        assert [one.status for one in load(into).records] == ["complete"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": {"name": "../x", "version": 1, "config": {}}}, "'../x' is not a name"),
        ({"architecture": {"name": "a/b", "config": {}}}, "'a/b' is not a name"),
    ],
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.json").write_text(record(**change).to_json())
    (tmp_path / "a" / "forged.json").write_text(make_record(id="../../forged").to_json())
    merged = merge([tmp_path / "a"], tmp_path / "deep" / "all")
    assert merged.added == 0
    assert sorted(problem.reason for problem in merged.problems) == sorted(
        [words, f"its id is '../../forged', and that of its content {record().id}"]
    )
    assert names(tmp_path) == ["a/forged.json", "a/x.json"]


def test_a_pack_holds_all_and_becomes_files_again(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path / "a", record(seed=seed))
    write(tmp_path / "a", record(seed=3, status="failed", error="no", metrics={}))
    done = invoke("pack", tmp_path / "a", "--out", tmp_path / "p" / "a.jsonl")
    assert done.exit_code == 0, done.output
    assert "4 records added" in done.output
    assert load(tmp_path / "p" / "a.jsonl").records == load(tmp_path / "a").records
    assert load(tmp_path / "p").records == load(tmp_path / "a").records  # a folder has the records of its packs
    merge([tmp_path / "p" / "a.jsonl"], tmp_path / "b")
    assert {name: (tmp_path / "b" / name).read_bytes() for name in names(tmp_path / "b")} == {
        name: (tmp_path / "a" / name).read_bytes() for name in names(tmp_path / "a")
    }


def test_a_pack_is_never_written_over_something(tmp_path: Path) -> None:
    write(tmp_path / "a", record())
    (tmp_path / "there.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        pack([tmp_path / "a"], tmp_path / "there.jsonl")
    with pytest.raises(UsageError, match=r"ends in \.jsonl"):
        pack([tmp_path / "a"], tmp_path / "there.json")
    with pytest.raises(UsageError, match="does not exist"):
        pack([tmp_path / "nowhere"], tmp_path / "new.jsonl")
    assert names(tmp_path) == ["a/bigram/aot/" + f"{record().id}-s0.json", "there.jsonl"]


def test_check_says_what_is_wrong_with_which(tmp_path: Path) -> None:
    write(tmp_path, record(seed=0), b"weights")
    assert invoke("check", tmp_path).output == "1 records: 1 complete, 0 failed\n"
    write(tmp_path, record(seed=1), b"weights").with_suffix(".safetensors").write_bytes(b"others")
    write(tmp_path, record(seed=2)).write_text("{")
    (tmp_path / "copy.json").write_text(record(seed=0, metrics={"accuracy": 0.75}).to_json())
    (tmp_path / "forged.json").write_text(make_record(id="forged").to_json())
    (tmp_path / "p.jsonl").write_text("no pack")
    done = invoke("check", tmp_path, "--json")
    assert isinstance(done.exception, MembenchError)
    assert done.exception.exit_code == 3
    found = json.loads(done.output)
    assert (found["records"], found["complete"], found["failed"]) == (4, 4, 0)
    reasons = {Path(one["source"]).name: one["reason"] for one in found["problems"]}
    assert len(reasons) == 5
    assert "SHA-256" in reasons[f"{record().id}-s1.json"]
    assert "not a whole JSON file" in reasons[f"{record().id}-s2.json"]
    assert "other numbers for the same trial" in str(reasons)
    assert reasons["forged.json"].startswith("its id is 'forged'")
    assert reasons["p.jsonl"] == "it is not a pack of records"


def test_a_full_disk_is_told_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from membench.interface.registry import Registry
    from membench.plan.request import Request, plan

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    trial = plan(Registry(), Request(["lookup"], ["bigram"], seeds=(0,)))[0]
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device; finished trials are kept: .*-s0\.json"):
        Store(tmp_path).write(trial, record())
    assert names(tmp_path) == []
