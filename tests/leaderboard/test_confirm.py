"""First places of models whose weights were found in another way than their records say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import FACTS, make_record

from membench.errors import UsageError
from membench.plan.trial import Point
from membench.records.record import Record
from membench.records.store import Entry
from membench.verbs.verify import Verification
from membench.verify.retrain import Repeat
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict
from membench_leaderboard import confirm, publish
from membench_leaderboard.confirm import points_behind, refuse_unconfirmed
from membench_leaderboard.first_places import FirstPlace, taken
from membench_leaderboard.frame import to_frame
from membench_leaderboard.review import _reviewed
from membench_leaderboard.rows import summarise
from membench_leaderboard.tracks import ACCURACY, EFFICIENCY, Track


def trials(name: str, track: Track, size: int, accuracy: float, seeds: int = 5, facts: int = 0) -> list[Record]:
    """A model of a size on the first task of a track; of a search, with a number of facts."""
    config = {"N": 64, "T0": facts} if facts else {"N": 64}
    label = f"N=64 T0={facts} zipf=0" if facts else track.tasks[0].config
    found = [
        make_record(
            seed=seed,
            architecture={"name": name, "version": 1, "config": {"d": size}, "label": f"d={size}"},
            task={"name": "bigram", "version": 1, "config": config, "label": label, **FACTS, "contexts": facts or 1291},
            protocol={"name": track.protocol, "version": 2, "config": {}, "label": track.protocol_config},
            metrics={"accuracy": accuracy, "kl": 1.0, "bits": 1.0, "bits_per_parameter": 0.1, "associations": 1.0},
            size={"parameters": size, "without_embeddings": size, "buffers": 0},
        )
        for seed in range(seeds)
    ]
    return [replace(one, id=Point.of(one).id) for one in found]


def entries(*records: Sequence[Record]) -> list[Entry]:
    return [Entry(one, "a.json", published=True, verified=True) for some in records for one in some]


def places(found: Sequence[Entry]) -> list[FirstPlace]:
    return list(taken([], summarise(to_frame(found)), "2026-02-03"))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Repeat]:
    """What is trained again: all of it does as well, but for models with d=500."""
    asked: list[Repeat] = []

    def repeat(planned: Sequence[Repeat], *more: Any, **words: Any) -> list[Repeat]:
        asked.extend(planned)
        worse = [one for one in planned if '"d": 500' in one.point.config]
        return [replace(one, outcome=FAILED if one in worse else VERIFIED, reason="accuracy is 0.1") for one in planned]

    monkeypatch.setattr(confirm, "repeat", repeat)
    return asked


def test_a_first_place_is_trained_again_before_it_is_published(trained: list[Repeat]) -> None:
    """Weights of a formula, or of more steps, under the name of a training that does not find such weights."""
    forged, honest = entries(trials("aot", ACCURACY, 500, 0.9)), entries(trials("aot", ACCURACY, 834, 0.9))
    with pytest.raises(
        UsageError, match=r"first place of accuracy, bigram would go to aot, and training point"
    ) as told:
        refuse_unconfirmed(places(forged), summarise(to_frame(forged)), forged)
    assert "did not confirm it: accuracy is 0.1" in str(told.value)
    refuse_unconfirmed(places(honest), summarise(to_frame(honest)), honest)
    assert [one.point.id for one in trained] == [forged[0].record.id, honest[0].record.id]


def test_a_first_place_takes_as_many_seeds_as_can_be_trained_again(trained: list[Repeat]) -> None:
    """Or a point with four seeds could not be drawn, and would hide behind others."""
    some = entries(trials("aot", ACCURACY, 500, 0.9, seeds=4), trials("aot", ACCURACY, 834, 0.95))
    with pytest.raises(UsageError, match="which takes at least 5 seeds of each point"):
        refuse_unconfirmed(places(some), summarise(to_frame(some)), some)
    assert not trained


def test_who_is_not_first_or_was_trained_again_before_is_not(trained: list[Repeat]) -> None:
    refuse_unconfirmed([], summarise(to_frame(some := entries(trials("aot", ACCURACY, 500, 0.9)))), some)
    theirs = entries(trials("theirs", ACCURACY, 500, 0.9))
    refuse_unconfirmed(places(theirs), summarise(to_frame(theirs)), theirs)
    assert not trained


def test_a_search_is_decided_by_the_most_facts_that_are_held(trained: list[Repeat]) -> None:
    size = EFFICIENCY.sizes[0]
    by_facts = {facts: trials("aot", EFFICIENCY, size, accuracy, facts=facts)
                for facts, accuracy in ((100, 1.0), (200, 0.995), (300, 0.5))}  # fmt: skip
    found = entries(*by_facts.values())
    (place,) = places(found)
    assert points_behind(place, summarise(to_frame(found))) == {by_facts[200][0].id}


def test_points_behind_a_score_are_the_best_of_each_size() -> None:
    best, other = trials("aot", ACCURACY, 500, 0.9), trials("aot", ACCURACY, 834, 0.95)
    found = entries(best, trials("aot", ACCURACY, 499, 0.2), other)
    (place,) = places(found)
    assert points_behind(place, summarise(to_frame(found))) == {best[0].id, other[0].id}


def test_publishing_confirms_the_first_places_that_new_records_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: list[Repeat]
) -> None:
    monkeypatch.setattr(publish, "HERE", tmp_path)  # without first places of before
    new = [replace(one, published=False) for one in entries(trials("aot", ACCURACY, 500, 0.9))]
    with pytest.raises(UsageError, match="did not confirm it"):
        publish.confirm_first_places(entries(trials("lookup", ACCURACY, 834, 0.1)), new)
    assert [one.point.architecture for one in trained] == ["aot"]
    held = [FirstPlace("accuracy", "bigram", "lookup", "2026-01-01", 0.99)]
    monkeypatch.setattr(publish, "read_history", lambda root: held)
    publish.confirm_first_places(entries(trials("lookup", ACCURACY, 500, 0.99)), new)  # which take none
    assert len(trained) == 1


@pytest.mark.parametrize(("seeds", "outcome"), [(5, VERIFIED), (4, UNCHECKED)])
def test_a_review_says_which_points_could_not_have_been_drawn(seeds: int, outcome: str) -> None:
    """One with too few seeds would hide behind one that is honest."""
    honest, other = (
        entries(trials("lookup", ACCURACY, size, 0.9, number)) for size, number in ((500, 5), (834, seeds))
    )
    verdicts = [Verdict(Path("a/b/c.json"), VERIFIED, entry=one) for one in (*honest, *other)]
    repeats = [Repeat(Point.of(honest[0].record), (7,), tuple(verdicts[:5]), VERIFIED)]
    found = _reviewed("name", Verification(verdicts, repeats, "salt"), [*honest, *other], [])
    assert found.outcome == outcome
    assert ("1 point with fewer than 5 seeds" in found.text) is (outcome == UNCHECKED)


def test_what_cannot_be_published_is_a_usage_error_and_no_lost_capacity(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "membench_leaderboard.publish", str(tmp_path / "none")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "none' does not exist" in done.stderr
