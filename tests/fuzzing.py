"""The fuzzer: files of every kind that membench reads, damaged at random; `python tests/fuzzing.py 15000` for long.

What a reader does not understand is one sentence, a MembenchError or Unreadable; anything else is a finding.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from samples import make_record

from membench.analysis.curves import read_overlay
from membench.analysis.trial_frame import trial_frame
from membench.errors import MembenchError
from membench.execute.probes import Probes
from membench.interface.origin import files_of, origin_of, origin_of_file
from membench.interface.registry import Registry
from membench.plan.experiment import parse as parse_experiment
from membench.plan.request import Request, plan
from membench.plan.trial import Point, Trial
from membench.printing import printable
from membench.records import weights
from membench.records.pack import Packed, pack
from membench.records.record import Record
from membench.records.store import Problem, Store, Unreadable, read, read_packed
from membench.regress.baseline import read_baseline
from membench.regress.suite import load_suite, parse_suite
from membench.verify.folder import brought_plugins, check_folder
from membench.verify.marks import Mark, with_marks, write_marks
from membench.verify.signature import sign
from membench.verify.submission import check_manifest, gather, summarise, write
from membench_leaderboard.data import as_csv, board_data
from membench_leaderboard.first_places import HISTORY, history_table, read_history, write_history
from membench_leaderboard.frame import to_frame
from membench_leaderboard.gather import read_entries
from membench_leaderboard.markdown import rows_as_markdown
from membench_leaderboard.published.compact import compact
from membench_leaderboard.rows import summarise as summarise_rows

ROOT = Path(__file__).parents[1]
NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, -1e308, 5e-324, 2**53, 2**63, 10**40, "", "1", "NaN", "x" * 3000,
    "\ud800", "\x00", "\x1b[2J", "../../x", "/dev/zero", "=1+1", "<script>", "ä\u202e", [], {}, [[]], [1, "a"], {"": 1},
    {"name": 7}, "distribution", "complete",
]  # fmt: skip
RAW = [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 3000, b'{"a":' * 2000, b"\xff\xfe", b"\x00", b'"\\ud800"']
REGISTRY = Registry()
(TRIAL,) = plan(REGISTRY, Request(["lookup"], ["bigram"], seeds=(0,)))
PLUGIN = "plugins/0123abcd/mine.py:Mine"
PLACE = {"track": "accuracy", "task": "bigram", "architecture": "aot", "since": "2026-01-01", "score": 0.5,
         "over": "lookup", "by": 0.1, "p": 0.001}  # fmt: skip


def mutate_data(data: Any, rng: random.Random) -> Any:
    """The same JSON with one place in it changed, removed or added."""
    if isinstance(data, dict) and data and rng.random() < 0.85:
        key = rng.choice(list(data))
        if rng.random() < 0.1:
            return {name: value for name, value in data.items() if name != key}
        if rng.random() < 0.05:
            return {**data, str(rng.choice(NASTY)): rng.choice(NASTY)}
        return {**data, key: mutate_data(data[key], rng)}
    if isinstance(data, list) and data and rng.random() < 0.85:
        place = rng.randrange(len(data))
        if rng.random() < 0.15:
            return data[:place] + data[place + 1 :] * 2
        return [*data[:place], mutate_data(data[place], rng), *data[place + 1 :]]
    return rng.choice(NASTY)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    way = rng.randrange(5)
    if way == 0:
        return content[:place]
    if way == 1:
        return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]
    if way == 2:
        return content[:place] + content[place + rng.randrange(40) :]
    if way == 3:
        return content[:place] + rng.choice(RAW) + content[place:]
    return content[:place] + content[rng.randrange(len(content) + 1) :]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """As JSON where it is JSON, or else as bytes; sometimes twice."""
    for _ in range(rng.choice((1, 1, 2))):
        try:
            data = json.loads(content)
        except (ValueError, RecursionError):
            data = None
        if data is None or rng.random() < 0.25:
            content = mutate_bytes(content, rng)
        else:
            content = json.dumps(mutate_data(data, rng)).encode()
    return content


def honest_records() -> list[Record]:
    found = []
    for seed in range(2):
        record = make_record(seed=seed, environment={"membench": "0.1.0"}, run={"seconds": 1.0})
        found.append(replace(record, id=Point.of(record).id))
    return found


def read_record(content: bytes, folder: Path) -> None:
    """To the board and back."""
    (folder / "a.json").write_bytes(content)
    (folder / "b.json").write_text(honest_records()[1].to_json())
    entries, _ = read_entries([folder])
    assert any(Path(one.source).name == "b.json" for one in entries), "a bad record costs others"
    rows = summarise_rows(to_frame(entries))
    if len(rows):
        assert all(math.isnan(value) or 0 <= value <= 1 + 1e-6 for value in rows["accuracy"])
        assert all(math.isnan(value) or value >= 0 for value in rows["parameters"])
        as_csv(rows).encode()
        rows_as_markdown(rows).encode()
        json.dumps(board_data(entries, rows, REGISTRY), allow_nan=False).encode()
    trial_frame([one.record for one in entries])
    for one in entries:
        Record.from_json(one.record.to_json())
        Trial.of(Point.of(one.record), REGISTRY, one.record.seed)


def read_submission(content: bytes, folder: Path) -> None:
    (folder / "a.json").write_bytes(content)
    entries, _ = gather([folder], without_weights=True)
    write(entries, folder / "out", summarise(entries))


def read_marks(content: bytes, folder: Path) -> None:
    (folder / "a.json").write_text(honest_records()[0].to_json())
    (folder / "verified.json").write_bytes(content)
    ((entry,), _) = with_marks([read(folder / "a.json")], [folder])
    Record.from_json(entry.record.to_json())


def read_signature(marks: bytes, content: bytes, folder: Path) -> None:
    """Marks count if the signature beside them is of them, and else not at all."""
    (folder / "a.json").write_text(honest_records()[0].to_json())
    (folder / "verified.json").write_bytes(marks)
    (folder / "verified.json.sig").write_bytes(content)
    ((entry,), problems) = with_marks([read(folder / "a.json")], [folder])
    assert entry.verified is not bool(problems), "marks in doubt count"
    assert not entry.verified or entry.verifier.startswith("unknown key SHA256:"), "nobody is known here"
    if problems:
        raise Unreadable(problems[0])


def read_manifest(content: bytes, folder: Path) -> None:
    (folder / "submission.json").write_bytes(content)
    for reason in check_manifest(folder, []).values():
        reason.encode()


def read_compact(content: bytes, folder: Path) -> None:
    (folder / "c.jsonl").write_bytes(content)
    rows = summarise_rows(to_frame(read_entries([folder / "c.jsonl"])[0]))
    as_csv(rows).encode()


def read_a_baseline(content: bytes, folder: Path) -> None:
    (folder / "b.json").write_bytes(content)
    read_baseline(folder / "b.json", load_suite("smoke"))


def read_weights(content: bytes, folder: Path) -> None:
    for prefix in weights.prefixes(content):
        try:
            weights.from_bytes(content, prefix)
        except ValueError as error:
            raise Unreadable(str(error)) from None


def read_csv(content: bytes, folder: Path) -> None:
    (folder / "o.csv").write_bytes(content)
    read_overlay(folder / "o.csv", "H", "accuracy")


def read_history_of_first_places(content: bytes, folder: Path) -> None:
    (folder / HISTORY).write_bytes(content)
    found = read_history(folder)
    history_table(found)
    write_history(found, folder)
    assert read_history(folder) == found


def read_a_pack(content: bytes, folder: Path) -> None:
    """One of somebody's own, with the curves of training."""
    (folder / "p.jsonl").write_bytes(content)
    problems: list[Problem] = []
    for one in read_packed(folder / "p.jsonl", problems):
        assert not one.verified, "what a pack says of its verification is believed"
        Record.from_json(one.record.to_json())
    for problem in problems:
        printable(problem).encode()


def read_a_folder(content: bytes, folder: Path) -> None:
    """That of a pull request, before anything else in it is read."""
    brought = folder / "brought"
    brought.mkdir()
    (brought / "submission.json").write_bytes(content)
    printable(check_folder(brought)).encode()
    try:
        assert all(Path(one).is_relative_to(brought / "plugins") for one in brought_plugins(brought))
    except ValueError as error:
        raise Unreadable(str(error)) from None


def read_probes(content: bytes, folder: Path) -> None:
    """What an interrupted run left of a choice of the learning rate."""
    probes = Probes.of(store := Store(folder), TRIAL)
    probes.path.parent.mkdir(parents=True)
    probes.path.write_bytes(content.replace(b"CODE", probes.code.encode()))
    for scores in Probes.of(store, TRIAL).scores.values():
        assert scores is None or all(map(math.isfinite, scores))


def read_plugin_file(content: bytes, folder: Path) -> None:
    """What a record says of a plugin file; it is read, and not run."""
    (folder / "beside.py").write_text("import plugin\n")
    (folder / "plugin.py").write_bytes(content)
    assert all(file.is_relative_to(folder) for file in files_of(folder / "plugin.py"))
    origin_of_file(folder / "plugin.py")


def read_direct_url(content: bytes, folder: Path) -> None:
    """What pip noted of a plugin that is not from an index."""
    (folder / "x-1.dist-info").mkdir()
    (folder / "x-1.dist-info" / "METADATA").write_text("Name: x\nVersion: 1\n")
    (folder / "x-1.dist-info" / "direct_url.json").write_bytes(content)
    json.dumps(asdict(origin_of(Distribution.at(folder / "x-1.dist-info"), "math")))


def as_text(parse: Callable[[str], object]) -> Callable[[bytes, Path], None]:
    return lambda content, folder: (parse(content.decode("utf-8", "replace")), None)[1]


def signature_in(folder: Path) -> bytes:
    """Of the marks in a folder, by a key that is made for it."""
    words = ["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / "key")]
    subprocess.run(["ssh-keygen", *words], check=True, stdin=subprocess.DEVNULL)
    return sign(folder / "verified.json", folder / "key").read_bytes()


def originals() -> dict[str, tuple[bytes, Callable[[bytes, Path], None]]]:
    """For each reader a file that it understands."""
    record = honest_records()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.json").write_text(record.to_json())
        entry = read(folder / "a.json")
        marks = write_marks(folder, [Mark(entry, record.metrics, record.size, record.bounds)]).read_bytes()
        signature = signature_in(folder)
        (folder / "verified.json").unlink()
        entries, _ = gather([folder], without_weights=True)
        write(entries, folder / "out", summarise(entries))
        manifest = (folder / "out" / "submission.json").read_bytes()
    tensors = save({"a": torch.zeros(3), "least-loss/a": torch.ones(3), "n": torch.zeros(1, dtype=torch.int64)})
    experiment = (ROOT / "membench/plan/experiments/e1.toml").read_bytes()
    suite = (ROOT / "membench/regress/suites/smoke.toml").read_bytes()
    return {
        "record": (record.to_json().encode(), read_record),
        "submitted record": (record.to_json().encode(), read_submission),
        "marks": (marks, read_marks),
        "signature": (signature, partial(read_signature, marks)),
        "manifest": (manifest, read_manifest),
        "compact": (compact(honest_records()).encode(), read_compact),
        "baseline": ((ROOT / "baselines/smoke.json").read_bytes(), read_a_baseline),
        "weights": (tensors, read_weights),
        "first places": (b"[" + json.dumps(PLACE).encode() + b"]", read_history_of_first_places),
        "pack": ("\n".join(pack(Packed(one) for one in honest_records())).encode() + b"\n", read_a_pack),
        "submitted folder": (json.dumps({**json.loads(manifest), "plugins": [PLUGIN]}).encode(), read_a_folder),
        "probes": (b'{"code": "CODE", "scores": {"0": [0.5, 1.5], "1": [0.25]}}', read_probes),
        "plugin file": (b"import torch\nimport beside\nfrom beside import one\n\nx = [1]\n", read_plugin_file),
        "direct URL": (
            b'{"vcs_info": {"commit_id": "a1"}, "dir_info": {"editable": true}}',
            read_direct_url,
        ),
        "overlay": (b"H,accuracy\n1,0.5\n2,0.75\n", read_csv),
        "experiment": (experiment, as_text(lambda text: parse_experiment("x", text, "'x.toml'"))),
        "suite": (suite, as_text(lambda text: parse_suite(text, "x.toml"))),
    }


def fuzz(count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """How often each reader took what it was given or refused it, and what it should not have done."""
    rng, files = random.Random(seed), originals()
    outcomes: Counter[str] = Counter()
    findings: dict[str, str] = {}
    names = ["record", *files]  # records twice: they come from strangers
    for number in range(count):
        name = names[number % len(names)]
        content, reader = files[name]
        content = mutated(content, rng)
        started = time.process_time()
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            try:
                reader(content, Path(folder))
                outcomes[f"{name}: read"] += 1
            except (MembenchError, Unreadable) as error:
                printable(error).encode()
                outcomes[f"{name}: refused"] += 1
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{name}: {type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"
                findings.setdefault(place[:160], f"{place[:400]}\n{content[:4000]!r}")
        if time.process_time() - started > 10:  # of this process: others may be at work on the machine
            findings.setdefault(f"{name}: slow", f"{name} took long\n{content[:4000]!r}")
    return outcomes, list(findings.values())


if __name__ == "__main__":
    told, found = fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for outcome, times in sorted(told.items()):
        print(times, outcome)
    print(*found, sep="\n\n")
    print(f"{len(found)} findings")
    sys.exit(bool(found))
