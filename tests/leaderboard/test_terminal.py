from __future__ import annotations

import csv
import io
import re
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console
from samples import make_record

from membench.errors import UsageError
from membench_leaderboard.data import as_csv, rows_as_json
from membench_leaderboard.frame import to_frame
from membench_leaderboard.markdown import rows_as_markdown, scores_as_markdown
from membench_leaderboard.plot import draw
from membench_leaderboard.published import published_entries
from membench_leaderboard.rows import TABLE, summarise
from membench_leaderboard.terminal import bar, boards, score_boards


def rows(*records: Any) -> Any:
    return summarise(to_frame(records or [make_record(), make_record(seed=1)]))


def shown(found: Any, width: int = 80, make: Any = boards, **more: Any) -> str:
    console = Console(file=io.StringIO(), width=width)
    for board in make(found, width=width, **more):
        console.print(board)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


QUICK = {"name": "quick", "version": 1, "config": {}, "label": ""}


def test_a_table_fits_80_columns_and_shows_everything() -> None:
    text = shown(rows())
    assert max(map(len, text.splitlines())) <= 80
    for part in ("aot", "d=10", "100", "50", "0.5000", "0.100", "0.070", "0.020", "bigram v1", "converged v2"):
        assert part in text


def test_a_wide_terminal_shows_more() -> None:
    sizes, metrics = {"parameters": 100, "identifiable": 77}, {"accuracy": 0.5, "excess_kl": 0.125}
    found = rows(make_record(size=sizes, metrics=metrics))
    assert "77" in shown(found, width=100)
    assert "0.1250" in shown(found, width=100)
    assert "0.1250" not in shown(found, width=60)


WIDTHS = (40, 60, 80, 100, 120, 130, 150, 200)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", [boards, score_boards])
def test_every_name_is_whole_and_no_line_too_long_at_any_width(make: Any, width: int) -> None:
    found = summarise(to_frame(published_entries()))
    text = shown(found, width, make)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    once = found.drop_duplicates([*TABLE, "architecture"]) if make is score_boards else found
    for name, expected in once["architecture"].value_counts().items():
        assert len(re.findall(rf"^ *\d+=? +{name}\*? ", text, re.M)) == expected, name


def test_a_wider_terminal_shows_what_a_narrower_one_does_and_more() -> None:
    found = summarise(to_frame(published_entries()))
    for make in (boards, score_boards):
        columns = [[str(column.header) for column in next(make(found, width=width)).columns] for width in WIDTHS]
        for fewer, more in pairwise(columns):
            assert [header for header in more if header in fewer] == fewer
        assert len(columns[0]) < len(columns[2]) < len(columns[-1])


def test_a_name_that_no_line_holds_is_folded_and_not_cut() -> None:
    name = "a-name-of-more-characters-than-a-narrow-terminal-has-columns"
    text = shown(rows(sized(name, 2000, 0.25), sized("b", 2000, 0.5)), 40)
    assert max(map(len, text.splitlines())) <= 40
    assert name in "".join(line[3:30].strip() for line in text.splitlines())


def test_a_column_that_says_nothing_is_left_out() -> None:
    found = rows(make_record(metrics={"accuracy": 0.5}))
    assert "facts" not in shown(found, 200)
    assert "facts" in shown(rows(), 200)


def test_only_like_shares_a_table() -> None:
    other = {"name": "bigram", "version": 2, "config": {"N": 50}, "label": "N=50"}
    assert len(list(boards(rows(make_record(), make_record(id="x", task=other))))) == 2


def test_quick_runs_are_shown_but_not_ranked() -> None:
    assert "not ranked" in " ".join(shown(rows(make_record(protocol=QUICK))).split())
    assert rows_as_json(rows(make_record(protocol=QUICK)))[0]["rank"] is None


def sized(name: str, parameters: int, accuracy: float, **more: Any) -> Any:
    metrics = {"accuracy": accuracy, "kl": 1 - accuracy, "bits_per_parameter": 2.5}
    return make_record(
        id=f"{name}{parameters}",
        architecture={"name": name, "config": {}, "label": ""},
        size={"parameters": parameters, "without_embeddings": parameters // 2},
        metrics=metrics,
        **more,
    )


def test_scores_fit_80_columns_and_say_why_they_are_in_this_order() -> None:
    found = rows(sized("a", 2000, 0.25), sized("a", 9000, 0.75), sized("b-with-a-long-name", 5000, 0.5))
    text = shown(found, make=score_boards)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    for part in ("at 3k", "at 30k", "0.250", "0.750", "2.50", "sorted by area", "trained, self-reported, membench"):
        assert part in words
    assert words.index("1 a ") < words.index("2 b-with-a-long-name")
    assert "█" not in text
    assert "█" in shown(found, make=score_boards, bars=True)
    assert text.count("0.500") == 2  # b fits 10k and 30k, and without its embeddings 3k too
    assert shown(found, make=score_boards, count="without-embeddings").count("0.500") == 3


def test_a_wide_terminal_shows_where_each_row_is_from() -> None:
    from membench.records.store import Entry

    found = rows(Entry(make_record(), published=True, verified=True), make_record())
    for make in (boards, score_boards):
        words = shown(found, 200, make).split()
        for part in ("published", "yours", "verified", "self-reported", "trained", "unknown"):
            assert part in words
    assert "published, verified" in " ".join(shown(found, 100).split())


def test_distributions_show_divergence_first_and_say_so() -> None:
    found = rows(sized("a", 2000, 0.25, task={**make_record().task, "kind": "distribution"}))
    assert "sorted by KL, lower is better" in " ".join(shown(found).split())
    assert "0.7500" in shown(found)
    words = " ".join(shown(found, make=score_boards).split())
    assert "lower is better" in words
    assert "KL at 3k" in scores_as_markdown(found)


@pytest.mark.parametrize(
    ("fraction", "text"), [(0, ""), (1, "████████"), (0.5, "████"), (1 / 64, "▏"), (7, "████████")]
)
def test_bars(fraction: float, text: str) -> None:
    assert bar(fraction) == text.ljust(8)


def test_markdown_cannot_be_broken_by_a_name() -> None:
    evil = make_record(architecture={"name": "a|b<script>", "config": {}, "label": "`x`\n| y"})
    for markdown in (rows_as_markdown(rows(evil)), scores_as_markdown(rows(evil))):
        assert "a\\|b&lt;script&gt;" in markdown
        assert "\n| y" not in markdown


def test_a_name_cannot_speak_to_the_terminal() -> None:
    evil = {"name": "a\x1b[2Jb\ud800", "config": {}, "label": "c\x07\x9b"}
    for make in (boards, score_boards):
        text = shown(rows(make_record(architecture=evil)), make=make)
        assert "a\ufffd[2Jb\ufffd" in text
        assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_a_model_without_name_and_options_is_a_row_too() -> None:
    found = rows(make_record(architecture={"name": "", "config": {}, "label": ""}))
    for make in (boards, score_boards):
        assert "0.500" in shown(found, make=make)


def test_markup_in_a_name_is_shown_as_text() -> None:
    text = shown(rows(make_record(architecture={"name": "[red]x[/red]", "config": {}, "label": "[bold]"})))
    assert "[red]x[/red]" in text
    assert "[bold]" in text


def test_markdown_and_csv_carry_the_same_rows() -> None:
    markdown = rows_as_markdown(rows())
    assert "| aot" in markdown
    assert markdown.startswith("### bigram v1 (N=50), protocol converged v2")
    (row,) = csv.DictReader(io.StringIO(as_csv(rows())))
    assert (row["architecture"], float(row["accuracy"])) == ("aot", 0.5)


def test_a_plot_is_written_in_each_format(tmp_path: Any) -> None:
    found = rows(make_record(), make_record(id="b", size={"parameters": 400}), make_record(id="c", seed=1))
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        assert draw(found, tmp_path / f"board{suffix}").read_bytes().startswith(start)


def test_a_plot_needs_one_table_and_a_known_format(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match=r"must end in .png, .svg, .pdf"):
        draw(rows(), tmp_path / "board.gif")
    with pytest.raises(UsageError, match=r"there are 2: bigram .*choose with --task, -T and --protocol"):
        draw(rows(make_record(), make_record(id="q", protocol=QUICK)), tmp_path / "board.png")
    with pytest.raises(UsageError, match="cannot write"):
        draw(rows(), tmp_path / "nowhere" / "board.png")
