from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import make_record

from membench.records.agreement import SMALL, TOLERANCE, same_numbers
from membench.records.pack import FORMAT, Damaged, NotAPack, Packed, pack, read_pack, unpack, write_pack
from membench.records.record import Record
from membench.records.sharing import Sharing
from membench.records.store import Problem, Store, Unreadable, read_packed


def some_records() -> list[Record]:
    rounds = [{"steps": 5, "curve": [0.1, 1 / 3]}]
    return [
        make_record(seed=0, trace={"converged": True, "rounds": rounds, "choice": {"tried": list(range(50))}}),
        make_record(seed=1, status="failed", error="it broke", metrics={}, bounds=[]),
        make_record(seed=2, weights={"file": "abc-s2.safetensors", "sha256": "0", "bytes": 7}),
        make_record(seed=3, more={"verified": True, "parts": 1, "colour": "blue"}),
        make_record(seed=4, bounds=[{"name": "a", "value": 1}, {"name": "b", "value": 1.0}, {"name": "c"}]),
    ]


def lines(records: list[Record]) -> list[bytes]:
    return [line.encode() for line in pack(Packed(record) for record in records)]


def test_all_of_every_record_can_be_had_back(tmp_path: Path) -> None:
    write_pack(tmp_path / "a.jsonl", [Packed(record) for record in some_records()])
    back = list(read_pack(tmp_path / "a.jsonl"))
    assert [one.record for one in back if isinstance(one, Packed)] == some_records()
    assert [one.record.to_json() for one in back if isinstance(one, Packed)][1:] == [
        record.to_json() for record in some_records()[1:]
    ]
    assert not any(one.verified for one in back if isinstance(one, Packed))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_curves_are_skipped_where_they_can_be_spared() -> None:
    first = next(unpack(iter(lines(some_records())), curves=False))
    assert isinstance(first, Packed)
    assert first.record.trace == {"converged": True, "choice": {"tried": list(range(50))}}


def test_numbers_that_json_has_not_are_null() -> None:
    (back,) = unpack(iter(lines([make_record(metrics={"accuracy": math.nan, "kl": 0.5})])))
    assert isinstance(back, Packed)
    assert back.record.metrics == {"accuracy": None, "kl": 0.5}


def test_records_share_what_they_have_in_common() -> None:
    first, second = unpack(iter(lines([make_record(seed=0), make_record(seed=1)])))
    assert isinstance(first, Packed)
    assert isinstance(second, Packed)
    assert first.record.task is second.record.task
    assert first.record.bounds[0] is second.record.bounds[0]


def problems(content: list[bytes]) -> list[str]:
    return [one.reason for one in unpack(iter(content)) if isinstance(one, Damaged)]


def test_a_pack_that_was_cut_is_noticed_wherever_it_was_cut() -> None:
    whole = lines(some_records())
    assert problems(whole) == []
    for end in range(1, len(whole)):
        assert any("cut short" in reason for reason in problems(whole[:end]))
    last_record = max(place for place, line in enumerate(whole) if b'"parts"' in line)
    assert any(
        "and was written with 5" in reason for reason in problems(whole[:last_record] + whole[last_record + 1 :])
    )


def test_a_bad_line_costs_itself() -> None:
    whole = lines(some_records())
    place = next(place for place, line in enumerate(whole) if b'"seed":2' in line)
    for bad in (b"{", b"\xff", b"[]", b"7", b'{"id":"a"}', whole[place].replace(b"0.5", b"1e999")):
        found = list(unpack(iter([*whole[:place], bad, *whole[place + 1 :]])))
        assert [one.record.seed for one in found if isinstance(one, Packed)] == [0, 1, 3, 4]
        assert [one.line for one in found if isinstance(one, Damaged)][:1] == [place + 1]


@pytest.mark.parametrize("value", ["true", '"high"', "2", "NaN", "-1"])
def test_a_number_that_no_trial_leaves_is_refused(value: str) -> None:
    content = [line.replace(b'"accuracy":0.5', f'"accuracy":{value}'.encode()) for line in lines([make_record()])]
    assert any(problems(content))


def test_two_parts_of_one_name_are_refused() -> None:
    whole = lines([make_record()])
    part = next(line for line in whole if b'"part"' in line)
    name = part.split(b'"')[3]
    assert problems([whole[0], b'{"part":"%s","is":7}' % name, *whole[1:]])[0].startswith("two parts are called")


@pytest.mark.parametrize("head", [b"", b"{}", b"[]", b"{", b'{"membench-records":true}', b'{"schema":2}'])
def test_what_is_no_pack_is_refused(head: bytes) -> None:
    with pytest.raises(NotAPack, match="is not a pack"):
        list(unpack(iter([head])))


def test_a_newer_pack_is_refused_in_words() -> None:
    with pytest.raises(NotAPack, match="upgrade membench"):
        list(unpack(iter([b'{"membench-records":%d}' % (FORMAT + 1)])))


def test_what_a_pack_says_of_verification_is_not_believed(tmp_path: Path) -> None:
    write_pack(tmp_path / "a.jsonl", [Packed(make_record(), verified=True)])
    found: list[Problem] = []
    (entry,) = read_packed(tmp_path / "a.jsonl", found)
    assert (entry.verified, found) == (False, [])
    with pytest.raises(Unreadable, match="not a regular file"):
        list(read_packed(tmp_path, found))


def test_the_file_of_a_trial_counts_before_a_pack_in_its_folder(tmp_path: Path) -> None:
    write_pack(tmp_path / "a.jsonl", [Packed(make_record(seed=seed)) for seed in (0, 1)])
    (tmp_path / "abc-s0.json").write_text(make_record(seed=0, metrics={"accuracy": 0.75}).to_json())
    found: list[Problem] = []
    entries = list(Store(tmp_path).entries(found))
    assert [(entry.record.seed, entry.record.metrics["accuracy"]) for entry in entries] == [(0, 0.75), (1, 0.5)]
    assert found == []


def test_sharing_changes_no_record_and_tells_1_from_1_0() -> None:
    sharing = Sharing()
    records = [*some_records(), make_record(size={"parameters": 1}), make_record(size={"parameters": 1.0})]
    shared = [sharing.of(record) for record in records]
    assert shared == records
    assert [type(record.size["parameters"]) for record in shared[-2:]] == [int, float]
    assert shared[0].task is shared[3].task


HERE = {"platform": "Linux x86_64", "cpu": "one"}
THERE = {"platform": "Linux x86_64", "cpu": "another"}


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        ({}, {}, True),
        ({}, {"metrics": {"accuracy": 0.5 + 1e-12}}, False),
        ({"environment": HERE}, {"environment": HERE, "metrics": {"accuracy": 0.5 + 1e-12}}, False),
        ({"environment": HERE}, {"environment": THERE, "metrics": {"accuracy": 0.5 + SMALL / 2}}, True),
        ({"environment": HERE}, {"environment": THERE, "metrics": {"accuracy": 0.5 * (1 + 2 * TOLERANCE)}}, False),
        ({"environment": HERE}, {"environment": THERE, "metrics": {"accuracy": None}}, False),
        ({"environment": HERE}, {"environment": THERE, "metrics": {"bits": 0.5}}, False),
        ({"environment": HERE}, {"environment": THERE, "size": {"parameters": 101}}, False),
    ],
)
def test_a_machine_repeats_itself_and_another_one_has_other_digits(
    first: dict[str, Any], second: dict[str, Any], agree: bool
) -> None:
    one = replace(make_record(metrics={"accuracy": 0.5}), **first)
    other = replace(make_record(metrics={"accuracy": 0.5}), **second)
    assert same_numbers(one, other) is agree
    assert same_numbers(other, one) is agree
