"""From a run to a submission that others can verify."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from samples import make_record

from membench.commands.verify import verify as verify_command
from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.execute.run import no_less_than_before
from membench.interface.origin import origin_of_file
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.records.record import Record
from membench.records.store import Store
from membench.verify.submission import check_manifest, gather, summarise, write

CLI = Callable[..., subprocess.CompletedProcess[str]]


def put(folder: Path, weights: bytes | None = b"weights", **changes: Any) -> Path:
    """A record as `run --keep-weights` leaves it; the weights need not be real to be copied."""
    record = make_record(**changes)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.id}-s{record.seed}.json"
    if weights is not None:
        digest = hashlib.sha256(weights).hexdigest()
        kept = {"file": f"{path.stem}.safetensors", "sha256": digest, "bytes": len(weights)}
        path.with_suffix(".safetensors").write_bytes(weights)
        record = replace(record, weights=kept)
    path.write_text(record.to_json(), encoding="utf-8")
    return path


def submit(folder: Path, out: Path, **options: bool) -> bool:
    entries, _ = gather([folder], options.get("without_weights", False))
    return write(entries, out, summarise(entries))


def test_records_weights_summary_and_digests_are_gathered(tmp_path: Path) -> None:
    for seed in (0, 1):
        put(tmp_path / "in" / "deep", seed=seed, metrics={"accuracy": 0.25 + seed / 2})
    put(tmp_path / "in", seed=2, status="failed")
    (tmp_path / "in" / "notes.json").write_text("{}", encoding="utf-8")
    entries, problems = gather([tmp_path / "in"], without_weights=False)
    assert [text.partition("'")[0] for text in problems] == ["left out ", "left out "]
    assert write(entries, tmp_path / "out", summarise(entries))
    manifest = json.loads((tmp_path / "out" / "submission.json").read_text("utf-8"))
    assert manifest["records"] == 2
    names = {row["file"] for row in manifest["files"]}
    assert names == {
        "summary.md",
        *(f"bigram/aot/abc-s{seed}.{end}" for seed in (0, 1) for end in ("json", "safetensors")),
    }
    for row in manifest["files"]:
        assert hashlib.sha256((tmp_path / "out" / row["file"]).read_bytes()).hexdigest() == row["sha256"]
    summary = (tmp_path / "out" / "summary.md").read_text("utf-8")
    assert "| bigram N=50 | converged  | aot d=10 | 2       | 100          | 0.5000     |" in summary


def test_text_of_a_record_stays_text_in_the_summary(tmp_path: Path) -> None:
    label = {"name": "aot", "config": {}, "label": "<script>|`x`\n# x"}
    put(tmp_path, architecture=label)
    assert r"aot &lt;script&gt;\|\`x\` # x" in summarise(gather([tmp_path], False)[0])


def test_a_submission_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    put(tmp_path / "in")
    assert submit(tmp_path / "in", tmp_path / "out")
    (tmp_path / "out" / "verified.json").write_text("{}", encoding="utf-8")
    assert not submit(tmp_path / "in", tmp_path / "out")  # the same again
    put(tmp_path / "in", seed=1)
    with pytest.raises(UsageError, match="already exists and is not this submission"):
        submit(tmp_path / "in", tmp_path / "out")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="already exists"):
        submit(tmp_path / "in", tmp_path / "file")
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_what_cannot_be_submitted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; records are written by"):
        gather([tmp_path / "nowhere"], False)
    with pytest.raises(UsageError, match=r"no complete records in .* make some with: membench run"):
        gather([tmp_path], False)
    path = put(tmp_path, weights=None)
    with pytest.raises(UsageError, match="is a file; name the folder"):
        gather([path], False)
    with pytest.raises(UsageError, match=r"names no weights.* --without-weights"):
        gather([tmp_path], False)
    assert gather([tmp_path], True)[0][0].weights is None
    put(tmp_path).with_suffix(".safetensors").write_bytes(b"others")
    with pytest.raises(UsageError, match="their SHA-256 differs"):
        gather([tmp_path], True)


def test_records_of_one_trial_must_agree(tmp_path: Path) -> None:
    put(tmp_path / "a")
    put(tmp_path / "b", run={"seconds": 7})
    assert len(gather([tmp_path], False)[0]) == 1
    put(tmp_path / "b", metrics={"accuracy": 0.6})
    with pytest.raises(UsageError, match=r"records of the same trial \(id abc, seed 0\) with different numbers"):
        gather([tmp_path], False)


def test_a_name_that_leads_out_of_the_folder_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, task={"name": "../../evil", "version": 1, "config": {}})
    with pytest.raises(UsageError, match="no complete records"):
        gather([tmp_path], False)


def test_a_newer_schema_is_refused_in_words(tmp_path: Path) -> None:
    put(tmp_path, seed=1)
    put(tmp_path, schema=99)
    with pytest.raises(UsageError, match="has record schema 99, but this membench reads up to"):
        gather([tmp_path], False)


def test_from_run_to_verified(membench: CLI, tmp_path: Path) -> None:
    words = ("run", "--model", "lookup", "--task", "bigram", "-T", "N=4", "--protocol", "quick", "--seeds", "2")
    ran = membench(*words, "--keep-weights")
    assert ran.returncode == 0, ran.stderr
    first, _ = sorted((tmp_path / "results").rglob("*.safetensors"))
    kept = first.read_bytes()
    first.unlink()
    refused = membench("submit")
    assert (refused.returncode, "--keep-weights" in refused.stderr) == (2, True)
    pending = json.loads(membench(*words, "--keep-weights", "--dry-run", "--json").stdout)
    assert [row["runs"] for row in pending] == [True, False]  # a record without its weights is not enough
    first.write_bytes(kept)
    assert "2 records, 2 with weights" in membench("submit").stdout

    done = membench("verify", "submission", COLUMNS="80")
    assert (done.returncode, "2 verified" in done.stdout) == (0, True), done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    board = membench("leaderboard", "submission")
    assert (board.returncode, board.stderr) == (0, "")

    record_file, _ = sorted((tmp_path / "submission").rglob("*-s*.json"))
    record = Record.from_json(record_file.read_text("utf-8"))
    record_file.write_text(replace(record, metrics={**record.metrics, "bits": 1e3}).to_json(), encoding="utf-8")
    lied = CliRunner().invoke(verify_command, [str(tmp_path / "submission"), "--json"])
    outcomes = [row["outcome"] for row in json.loads(lied.stdout)["records"]]
    assert (lied.exit_code, outcomes) == (1, ["failed", "verified"])
    assert len(json.loads((tmp_path / "submission" / "verified.json").read_text("utf-8"))["records"]) == 1


def test_a_record_that_is_made_again_keeps_what_it_had(tmp_path: Path) -> None:
    registry, store = Registry(), Store(tmp_path)
    trials = plan(registry, Request(["aot"], ["bigram"], protocol="quick", seeds=(0, 1)))
    assert no_less_than_before(Execution(), trials, store) == Execution()
    had = {"id": trials[0].id, "metrics": {"accuracy": 0.5, "excess_kl": 0.1}, "weights": {"file": "x"}}
    store.write(trials[0], make_record(**had))
    assert no_less_than_before(Execution(), trials, store) == Execution(keep_weights=True, floor=True)


def of_plugin(path: Path, target: str = "") -> dict[str, Any]:
    origin = {"distribution": f"{path}{target}", "code_sha256": origin_of_file(path).code_sha256}
    return {"name": "toy", "config": {}, **origin}


def test_a_plugin_file_that_nobody_else_has_is_taken_along_with_its_neighbours(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("import beside\n", encoding="utf-8")
    (tmp_path / "beside.py").write_text("x = 1\n", encoding="utf-8")
    put(tmp_path / "in", architecture=of_plugin(plugin, ":Mine"))
    assert submit(tmp_path / "in", tmp_path / "out")
    digest = str(origin_of_file(plugin).code_sha256)[:8]
    manifest = json.loads((tmp_path / "out" / "submission.json").read_text("utf-8"))
    assert manifest["plugins"] == [f"plugins/{digest}/mine.py:Mine"]
    assert {f"plugins/{digest}/mine.py", f"plugins/{digest}/beside.py"} <= {row["file"] for row in manifest["files"]}
    assert check_manifest(tmp_path / "out", list((tmp_path / "out" / "bigram").rglob("*.json"))) == {}
    copy = tmp_path / "out" / "plugins" / digest / "mine.py"
    assert origin_of_file(copy).code_sha256 == origin_of_file(plugin).code_sha256


def test_a_record_whose_plugin_file_changed_or_went_cannot_be_submitted(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("x = 1\n", encoding="utf-8")
    put(tmp_path / "in", architecture=of_plugin(plugin))
    plugin.write_text("x = 2\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.py', which has changed since"):
        submit(tmp_path / "in", tmp_path / "out")
    plugin.unlink()
    with pytest.raises(UsageError, match=r"mine\.py', which is no longer there"):
        submit(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()
