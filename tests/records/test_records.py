from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import make_record

from membench.engine.protocols.protocol import get_protocol
from membench.errors import UsageError
from membench.execute.probes import Probes
from membench.interface.registry import Registry
from membench.measure import environment as environment_module
from membench.plan.trial import Trial
from membench.records import record as record_module
from membench.records import weights
from membench.records.files import write_atomically
from membench.records.record import SCHEMA, UPGRADES, Record
from membench.records.store import Store, Unreadable, read
from membench_leaderboard.gather import read_entries

SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**50), 2**50)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
NESTED = st.recursive(SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


def ours(name: str) -> dict[str, Any]:
    """The part of a record that names a built-in."""
    return {"name": name, "version": 1, "distribution": "membench", "config": {}}


def trial(seed: int = 0, **options: Any) -> Trial:
    registry, protocol = Registry(), get_protocol("quick")
    architecture, task = registry.architecture("lookup"), registry.task("bigram")
    return Trial(architecture, architecture.config(), task, task.config(**options), protocol, protocol.config(), seed)


@given(
    seed=st.integers(0, 2**40),
    accuracy=st.floats(0, 1),
    extra=st.dictionaries(st.text(), NESTED, max_size=4),
    error=st.none() | st.text(),
)
def test_any_record_survives_the_way_to_text_and_back(seed: int, accuracy: float, extra: Any, error: Any) -> None:
    record = make_record(seed=seed, metrics={"accuracy": accuracy}, trace=extra, error=error)
    assert Record.from_json(record.to_json()) == record


def test_nan_is_null_and_the_schema_comes_first() -> None:
    text = make_record(metrics={"accuracy": math.nan, "kl": math.inf}).to_json()
    assert json.loads(text)["metrics"] == {"accuracy": None, "kl": None}
    assert text.startswith('{\n "schema": ')


@given(st.text() | NESTED.map(json.dumps))
def test_foreign_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (any text of the sentence will do)
        Record.from_json(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": None}, "id is a NoneType"),
        ({"architecture": {"name": "x"}}, "lacks architecture.config"),
        ({"metrics": {"accuracy": "high"}}, "metrics.accuracy is 'high', and not a number"),
        ({"metrics": {"accuracy": 5}}, "metrics.accuracy is 5, and not between 0 and 1"),
        ({"metrics": {"recall@5": 1.5}}, "metrics.recall@5 is 1.5, and not between 0 and 1"),
        ({"metrics": {"accuracy@int8": 2}}, "metrics.accuracy@int8 is 2, and not between 0 and 1"),
        ({"metrics": {"bits": True}}, "metrics.bits is True, and not a number"),
        ({"size": {"parameters": -5}}, "size.parameters is -5, and not between 0 and"),
        ({"size": {"parameters": 1.5}}, "size.parameters is 1.5, and not a whole number"),
        ({"size": {"parameters": True}}, "size.parameters is True, and not a whole number"),
        ({"seed": -1}, "seed is -1, and not between 0"),
        ({"seed": True}, "seed is True, and not a whole number"),
        ({"seed": 2**64}, "whole number beyond"),
        ({"task": {"name": 7, "version": 1, "config": {}}}, "task.name is 7, and not a text"),
        ({"task": {"name": "x", "version": "1", "config": {}}}, "task.version is '1', and not a whole number"),
        ({"task": {"name": "x", "version": 1, "config": []}}, "task.config is a list"),
        ({"task": {"name": "x", "version": 1, "config": {}, "answers": 0}}, "task.answers is 0"),
        ({"trace": {"text": "\ud800"}}, "not Unicode"),
        ({"trace": {"deep": json.loads("[" * 60 + "]" * 60)}}, "nested more than 40 deep"),
        ({"bounds": [7]}, "one of its bounds is a int"),
        ({"bounds": [{"name": "x", "value": "1"}]}, "bounds.value is '1', and not a number"),
        ({"schema": "one"}, "not a membench record"),
    ],
)
def test_a_damaged_record_says_what_is_wrong(change: dict[str, Any], words: str) -> None:
    data = {**json.loads(make_record().to_json()), **change}
    with pytest.raises(ValueError, match=words):
        Record.from_json(json.dumps(data))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
def test_a_number_that_is_none_is_refused(number: str) -> None:
    text = make_record().to_json().replace('"accuracy": 0.5', f'"accuracy": {number}')
    assert number in text
    with pytest.raises(ValueError, match=r"number|finite|digits|not valid JSON"):
        Record.from_json(text)


def test_only_regular_files_of_sensible_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(65 << 20)
    for path in Store(tmp_path).files():
        with pytest.raises(Unreadable, match=r"not a regular file|at most"):
            read(path)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(ValueError, match=r"its weights .pipe\.safetensors.: it is not a regular file"):
        weights.read({"file": "pipe.safetensors"}, tmp_path / "pipe.json")


def test_a_field_that_somebody_else_adds_survives_a_rewrite() -> None:
    data = {**json.loads(make_record().to_json()), "colour": "blue"}
    record = Record.from_json(json.dumps(data))
    assert json.loads(record.to_json()) == data


def test_identity_depends_on_what_is_measured_and_not_on_the_seed() -> None:
    assert trial(seed=0).id == trial(seed=1).id == trial(N=50).id
    assert trial(N=20).id != trial().id


def test_a_store_finds_what_it_wrote_and_only_that(tmp_path: Path) -> None:
    store, one = Store(tmp_path), trial()
    assert store.find(one) is None
    record = make_record(id=one.id, architecture=ours("lookup"), task=ours("bigram"))
    path = store.write(one, record)
    assert path == tmp_path / "bigram" / "lookup" / f"{one.id}-s0.json"
    assert store.find(one) == record
    assert store.find(trial(seed=1)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}'])
def test_a_broken_record_counts_as_missing(tmp_path: Path, text: str) -> None:
    store, one = Store(tmp_path), trial()
    store.write(one, make_record(id=one.id))
    store.path(one).write_text(text)
    assert store.find(one) is None


def test_a_failed_record_is_tried_again(tmp_path: Path) -> None:
    store, one = Store(tmp_path), trial()
    store.write(one, make_record(id=one.id, status="failed", error="no"))
    assert store.find(one) is None


def newer() -> str:
    return json.dumps({**json.loads(make_record().to_json()), "schema": SCHEMA + 1})


def test_a_record_of_a_newer_schema_is_refused_by_name_and_stops_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.json").write_text(newer())
    (tmp_path / "y.json").write_text(make_record().to_json())
    entries, problems = read_entries([tmp_path])
    assert [Path(entry.source).name for entry in entries] == ["y.json"]
    assert len(problems) == 1
    assert re.search(rf"x.json'.*schema {SCHEMA + 1}.*upgrade membench", problems[0])
    with pytest.raises(UsageError, match="upgrade membench"):
        read_entries([tmp_path / "deep" / "x.json"])


def test_a_record_of_a_newer_schema_is_never_overwritten(tmp_path: Path) -> None:
    store, one = Store(tmp_path), trial()
    path = store.write(one, make_record(id=one.id))
    path.write_text(newer())
    with pytest.raises(UsageError, match="upgrade membench"):
        store.find(one)


def schema_1(**changes: Any) -> dict[str, Any]:
    """A record as the first release wrote it."""
    return {
        "schema": 1, "id": "abc", "seed": 0, "status": "complete",
        "architecture": {"name": "aot", "distribution": "membench", "version": "0.1.0", "config": {"d": 10}},
        "task": {"name": "low-entropy", "distribution": "membench", "version": 1, "commit": None,
                 "config": {"N": 20, "S": 3, "T0": 400}},
        "protocol": {"name": "converged", "version": 1, "config": {}},
        "bounds": [
            {"name": "chance", "quantity": "accuracy", "direction": "baseline", "value": 0.05},
            {"name": "bayes", "quantity": "accuracy", "direction": "upper", "value": 0.9},
            {"name": "support", "quantity": "associations", "direction": "upper", "value": 400.0},
        ],
        **changes,
    }  # fmt: skip


def test_schema_1_is_read_as_if_it_had_said_what_was_asked() -> None:
    record = Record.from_json(json.dumps(schema_1()))
    told = {key: record.task[key] for key in ("kind", "contexts", "vocab", "answers", "length")}
    assert told == {"kind": "distribution", "contexts": 400, "vocab": 20, "answers": 20, "length": 3}
    assert (record.schema, record.architecture["version"], record.architecture["distribution_version"]) == (
        SCHEMA, 1, "0.1.0",
    )  # fmt: skip
    assert [bound["direction"] for bound in record.bounds] == ["reference", "upper", "upper"]
    assert Record.from_json(record.to_json()) == record


def test_each_older_schema_goes_through_the_upgrades_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_3(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "metrics": {"accuracy_of_schema_2": data["metrics"].get("accuracy")}}

    second = json.loads(make_record(metrics={"accuracy": 0.5}).to_json())
    monkeypatch.setattr(record_module, "SCHEMA", 3)
    monkeypatch.setitem(UPGRADES, 2, to_3)
    upgraded = Record.from_data(second)
    assert upgraded.schema == 3
    assert upgraded.architecture == second["architecture"]  # it did not go through the upgrade of schema 1
    assert upgraded.metrics == {"accuracy_of_schema_2": 0.5}
    oldest = Record.from_data(schema_1(metrics={"accuracy": 1.0}))
    assert (oldest.schema, oldest.architecture["version"], list(oldest.metrics)) == (3, 1, ["accuracy_of_schema_2"])


def test_a_schema_that_no_membench_wrote_is_refused() -> None:
    with pytest.raises(ValueError, match="has record schema 0, which no membench wrote"):
        Record.from_data(schema_1(schema=0))


def test_schema_1_without_bounds_is_told_by_its_options() -> None:
    task = {"name": "bigram", "version": 1, "config": {"N": 50, "T0": 2500}}
    record = Record.from_json(json.dumps(schema_1(task=task, bounds=[])))
    told = {key: record.task[key] for key in ("kind", "contexts", "vocab", "length")}
    assert told == {"kind": "association", "contexts": 2500, "vocab": 50, "length": 2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"architecture": {"version": 2}}, "lookup is version 1, and was 2"),
        ({"architecture": {"distribution": "third"}}, "third"),
    ],
)
def test_a_trial_is_found_again_only_while_its_code_is_here(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    store, one = Store(tmp_path), trial()
    architecture = {**ours("lookup"), **changes.get("architecture", {}), "code_sha256": None}
    store.write(one, make_record(id=one.id, architecture=architecture, task=ours("bigram")))
    assert (store.find(one) is None) is bool(words)
    assert bool(store.why_stale(one)) is bool(words)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"numpy": version("numpy")}, ""),
        ({"numpy": "0.9"}, f"numpy is {version('numpy')}, and was 0.9"),
        ({}, f"numpy is {version('numpy')}, and was not noted"),
    ],
)
def test_another_version_of_a_wrapped_package_is_other_code(
    tmp_path: Path, environment: dict[str, Any], words: str
) -> None:
    store, plain = Store(tmp_path), trial()
    bridge = replace(plain, architecture=replace(plain.architecture, packages={"numpy": "numpy"}))
    record = make_record(id=bridge.id, architecture=ours("lookup"), task=ours("bigram"), environment=environment)
    store.write(bridge, record)
    assert bridge.id == plain.id
    assert store.why_stale(bridge) == words
    assert (store.find(bridge) is None) is bool(words)
    assert store.find(plain) == record  # which wraps nothing


def test_probes_are_of_one_version_of_a_wrapped_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trial()
    bridge = replace(plain, architecture=replace(plain.architecture, packages={"numpy": "numpy"}))
    codes = {Probes.of(Store(tmp_path), one).code for one in (plain, bridge)}
    monkeypatch.setattr(environment_module, "_version", lambda package: "0.9")
    assert len({*codes, Probes.of(Store(tmp_path), bridge).code}) == 3


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: os.mkfifo(path), lambda path: None])
def test_what_is_no_regular_file_is_unreadable(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "x.json")
    with pytest.raises(Unreadable, match=r"regular|cannot be read"):
        read(tmp_path / "x.json")


def test_deep_nesting_is_unreadable_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema": 2, "trace": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(Unreadable, match="deeply"):
        read(tmp_path / "x.json")


def test_reading_names_and_skips_what_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(make_record().to_json())
    (tmp_path / "cut.json").write_text(make_record().to_json()[:100])
    (tmp_path / "foreign.json").write_text('{"a": 1}')
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    entries, problems = read_entries([tmp_path])
    assert [entry.record for entry in entries] == [make_record()]
    assert len(problems) == 3
    assert all(any(name in problem for problem in problems) for name in ("cut.json", "foreign.json", "binary.json"))
    assert len(list(tmp_path.iterdir())) == 4


def test_an_unwritable_folder_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another folder with --out"):
        Store(tmp_path / "file" / "results").check()


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
