from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import make_record

from membench.engine.protocols.protocol import get_protocol
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.plan.trial import Trial
from membench.records.files import write_atomically
from membench.records.record import SCHEMA, Record
from membench.records.store import Store
from membench_leaderboard.sources import read_entries

SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**50), 2**50)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
NESTED = st.recursive(SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


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
        ({"metrics": {"accuracy": "high"}}, "metrics are not numbers"),
        ({"schema": "one"}, "not a membench record"),
    ],
)
def test_a_damaged_record_says_what_is_wrong(change: dict[str, Any], words: str) -> None:
    data = {**json.loads(make_record().to_json()), **change}
    with pytest.raises(ValueError, match=words):
        Record.from_json(json.dumps(data))


def test_a_field_that_a_later_version_of_this_schema_adds_is_left_alone() -> None:
    data = {**json.loads(make_record().to_json()), "colour": "blue"}
    assert Record.from_json(json.dumps(data)) == make_record()


def test_identity_depends_on_what_is_measured_and_not_on_the_seed() -> None:
    assert trial(seed=0).id == trial(seed=1).id == trial(N=50).id
    assert trial(N=20).id != trial().id


def test_a_store_finds_what_it_wrote_and_only_that(tmp_path: Path) -> None:
    store, one = Store(tmp_path), trial()
    assert store.find(one) is None
    record = make_record(id=one.id)
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


def test_a_newer_schema_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    newer = {**json.loads(make_record().to_json()), "schema": SCHEMA + 1}
    (tmp_path / "deep" / "x.json").write_text(json.dumps(newer))
    for look in (lambda: Store(tmp_path).check(), lambda: read_entries([tmp_path])):
        with pytest.raises(UsageError, match=f"schema {SCHEMA + 1}.*upgrade membench"):
            look()


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
