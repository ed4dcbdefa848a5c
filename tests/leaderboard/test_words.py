from __future__ import annotations

from typing import Any

from samples import make_record

from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import Table, summarise, tables
from membench_leaderboard.words import counted, note, score_note, seeds, shared_provenance, short_title, title

STEPS = {"name": "converged", "version": 1, "config": {"steps": 9}, "label": "steps=9"}


def table(*records: Any) -> Table:
    (one,) = tables(summarise(to_frame(records)))
    return one


def test_one_is_singular() -> None:
    assert [counted(number, "row") for number in (0, 1, 2, 1000)] == ["0 rows", "1 row", "2 rows", "1,000 rows"]
    assert [seeds(1), seeds(5, 5), seeds(1, 5)] == ["1 seed", "5 seeds", "1 to 5 seeds"]


def test_a_title_has_all_that_tells_a_table_from_others() -> None:
    common = table(make_record(protocol=STEPS)).common
    assert title(common) == "bigram v1 (N=50), protocol converged v1 (steps=9)"
    assert title(table(make_record()).common) == "bigram v1 (N=50), protocol converged v2"
    assert short_title(common) == "bigram (N=50), converged"


def test_a_note_says_how_many_models_could_still_improve() -> None:
    stopped = {"converged": False}
    assert "converge" not in note(table(make_record()))
    assert note(table(make_record(trace=stopped))).endswith("; 1 model could still improve with more steps")
    both = table(make_record(trace=stopped), make_record(id="b", trace=stopped))
    for words in (note(both), score_note(both)):
        assert words.endswith("; 2 models could still improve with more steps")


def test_a_note_says_which_parameters_a_budget_counts() -> None:
    one = table(make_record())
    assert "at most that many parameters, 1 seed" in score_note(one)
    assert "at most that many parameters without embeddings, 1 seed" in score_note(one, "without-embeddings")


def test_provenance_that_all_rows_share_is_said_once() -> None:
    other = make_record(id="b", environment={"membench": "0.2"})
    models = table(make_record(), other).models
    assert shared_provenance(models) == ("yours", "trained", "self-reported")
