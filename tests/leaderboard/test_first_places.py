"""Who holds a first place, and what it takes to take it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from samples import FACTS, make_record

from membench.commands.leaderboard import leaderboard as command
from membench.errors import UsageError
from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard import first_places
from membench_leaderboard.first_places import FirstPlace, history_table, read_history, taken, write_history
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise
from membench_leaderboard.tracks import ACCURACY, TRACKS

BIGRAM = ACCURACY.tasks[0]


def trials(name: str, accuracies: dict[int, float], track: str = "accuracy") -> list[Record]:
    """A model of every size of a track on its first task, which gets so much right on each seed."""
    kind = TRACKS[track]
    task = {"name": "bigram", "version": 1, "config": {}, "label": kind.tasks[0].config, **FACTS}
    protocol = {"name": kind.protocol, "version": 2, "config": {}, "label": kind.protocol_config}
    return [
        make_record(
            id=hashlib.sha256(f"{name}{size}".encode()).hexdigest()[:12],
            seed=seed,
            architecture={"name": name, "version": 1, "config": {}, "label": f"size={size}"},
            task=task,
            protocol=protocol,
            metrics={"accuracy": accuracy, "kl": 1.0, "bits": 1.0, "bits_per_parameter": 0.1, "associations": 1.0},
            size={"parameters": size, "without_embeddings": size, "buffers": 0},
        )
        for size in kind.sizes
        for seed, accuracy in accuracies.items()
    ]


def board(*records: list[Record]) -> pd.DataFrame:
    return summarise(to_frame(Entry(one, published=True) for some in records for one in some))


OLD = trials("old", {seed: 0.5 + seed / 100 for seed in range(5)})
HOLDS = FirstPlace("accuracy", "bigram", "old", "2026-01-01", 0.52)


def test_what_nobody_had_goes_to_the_best() -> None:
    (one,) = taken([], board(OLD, trials("worse", dict.fromkeys(range(5), 0.4))), "2026-02-03")
    assert (one.place, one.architecture, one.since, one.over) == (("accuracy", "bigram"), "old", "2026-02-03", None)
    assert one.score == pytest.approx(0.52)


def test_seeds_are_compared_in_pairs_so_that_a_small_gain_on_all_of_them_counts() -> None:
    steady = trials("steady", {seed: 0.51 + seed / 100 + (seed % 2) / 1000 for seed in range(5)})
    (one,) = taken([HOLDS], board(OLD, steady), "2026-02-03")
    assert (one.architecture, one.over) == ("steady", "old")
    assert one.by == pytest.approx(0.0104)
    assert one.p is not None
    assert one.p < 1e-5


def test_a_better_mean_that_luck_could_explain_takes_nothing() -> None:
    lucky = trials("lucky", {0: 0.49, 1: 0.6, 2: 0.49, 3: 0.6, 4: 0.51})
    assert list(taken([HOLDS], board(OLD, lucky), "2026-02-03")) == []
    assert list(taken([HOLDS], board(OLD, trials("one seed", {0: 0.9})), "2026-02-03")) == []
    assert list(taken([HOLDS], board(OLD, trials("other seeds", {7: 0.9, 8: 0.9})), "2026-02-03")) == []


def test_seeds_that_only_one_of_them_has_do_not_count() -> None:
    more = trials("more", {**{seed: 0.5 + seed / 100 for seed in range(5)}, 5: 0.99, 6: 0.99})
    assert list(taken([HOLDS], board(OLD, more), "2026-02-03")) == []


def test_the_history_is_kept_and_shown_with_the_newest_holder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [HOLDS, FirstPlace("accuracy", "bigram", "new", "2026-02-03", 0.6, "old", 0.08, 0.001)]
    write_history(history, tmp_path)
    assert read_history(tmp_path) == history
    assert [row[2] for row in history_table(history)[1]] == ["new", "old"]
    monkeypatch.setattr(first_places.read_history, "__defaults__", (tmp_path,))
    shown = CliRunner().invoke(command, ["--history"])
    assert shown.exit_code == 0
    assert "2026-02-03" in shown.output
    assert "+0.080" in shown.output
    assert json.loads(CliRunner().invoke(command, ["--history", "--json"]).output)[1]["over"] == "old"
    refused = CliRunner().invoke(command, ["--history", "--format", "csv"])
    assert isinstance(refused.exception, UsageError)


WHOLE = '{"track": "accuracy", "task": "bigram", "architecture": "aot", "since": "2026-01-01", "score": 0.5}'


@pytest.mark.parametrize(
    "text",
    ['[{"track": 1}]', "[7]", "7", "[" * 3000, WHOLE, f"[{WHOLE.replace('0.5', 'NaN')}]",
     f'[{WHOLE.replace("0.5", "true")}]', f"[{WHOLE.replace(chr(34) + 'aot' + chr(34), '[]')}]"],
)  # fmt: skip
def test_a_damaged_history_is_refused_in_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"'history.json' is damaged"):
        read_history(tmp_path)
    assert read_history(tmp_path / "none") == []
