"""The page in a real browser: what its script does, and what it must never do."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from boards import HOSTILE, sample_board, track_board
from webdriver import Browser, browser, missing

from membench_leaderboard.page import page

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"the page is not tried in a browser: {missing()}")

ROWS = "table.rows tbody tr"
FIRST = "#table-0"
POINT = f"{FIRST} .plots figure:first-child svg a"


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return sample_board()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def path(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "board.html"
    file.write_text(page(data), encoding="utf-8")
    return file


@pytest.fixture
def shown(window: Browser, path: Path) -> Browser:
    """The page, freshly opened on a wide and light screen."""
    window.prefer(prefers_color_scheme="light")
    window.resize(1280)
    window.open(path)
    return window


def each(window: Browser, css: str, what: str) -> list[Any]:
    """What a JavaScript expression says of each visible element, called e, in the order of the page."""
    visible = "[...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility())"
    found: list[Any] = window.run(f"return {visible}.map((e) => {what})", css)
    return found


def texts(window: Browser, css: str) -> list[str]:
    return each(window, css, "e.innerText")


def names(window: Browser, table: str = FIRST) -> list[str]:
    return texts(window, f"{table} {ROWS} th.name a")


def accuracies(window: Browser) -> list[float]:
    return [float(text.split()[0]) for text in texts(window, f"{FIRST} {ROWS} td:has(> small):not(.id)")]


def head(key: str, table: str = FIRST) -> str:
    return f'{table} table.rows thead th[data-key="{key}"]'


def sort_state(window: Browser, key: str) -> str | None:
    state: str | None = window.run("return document.querySelector(arguments[0]).getAttribute('aria-sort')", head(key))
    return state


def tip(window: Browser) -> str:
    window.settle()
    return "\n".join(texts(window, "#tip"))


def test_it_opens_in_the_order_of_the_board_and_says_nothing_on_the_console(shown: Browser, data: Any) -> None:
    for number, table in enumerate(data["tables"]):
        assert names(shown, f"#table-{number}") == [row["architecture"] for row in table["rows"]]
    assert shown.console() == []
    assert texts(shown, "#count") == ["11 of 11 rows shown"]


def test_a_name_that_is_a_script_is_shown_and_does_not_run(shown: Browser) -> None:
    assert HOSTILE in names(shown)
    assert HOSTILE in texts(shown, ".legend li")
    assert shown.run("return document.scripts.length") == 2  # an alert would have stopped every command before
    shown.hover(f"{POINT}[aria-label^='<script>']")
    assert HOSTILE in tip(shown)


def test_even_a_script_that_got_in_would_be_refused(shown: Browser) -> None:
    shown.run(
        "const s = document.createElement('script'); s.textContent = 'window.ran = true'; document.body.append(s);"
        "const i = document.createElement('img'); i.src = 'https://example.org/x.png'; document.body.append(i);"
    )
    shown.settle()
    assert shown.run("return window.ran") is None
    assert sum("Content Security Policy" in line for line in shown.console()) == 2


def test_a_click_sorts_and_another_turns_it_round(shown: Browser) -> None:
    before = accuracies(shown)
    assert before == sorted(before, reverse=True)
    assert sort_state(shown, "accuracy") == "descending"
    shown.click(f"{head('parameters')} button")
    assert (sort_state(shown, "parameters"), sort_state(shown, "accuracy")) == ("ascending", None)
    sizes = [int(text.replace(",", "")) for text in texts(shown, f"{FIRST} {ROWS} td:nth-child(3)")]
    assert sizes == sorted(sizes) == [800, 1000, 2000, 3200, 4000, 12800]
    shown.click(f"{head('parameters')} button")
    assert sort_state(shown, "parameters") == "descending"
    assert texts(shown, f"{FIRST} {ROWS} td:nth-child(3)")[0] == "12,800"
    shown.click(f"{head('rank')} button")
    assert accuracies(shown) == before


def test_the_keyboard_sorts_too(shown: Browser) -> None:
    shown.run("document.querySelector(arguments[0]).focus()", f"{head('architecture')} button")
    shown.press("Enter")
    assert sort_state(shown, "architecture") == "ascending"
    assert names(shown) == [HOSTILE, "aot", "aot", "aot", "mlp-transformer", "mlp-transformer"]


def test_words_and_choices_filter_tables_plots_and_scores(shown: Browser) -> None:
    shown.type("#words", "MLP d=40")
    assert [names(shown, f"#table-{number}") for number in range(3)] == [["mlp-transformer"], [], []]
    assert texts(shown, "#count") == ["1 of 11 rows shown"]
    assert each(shown, POINT, "e.tagName") == ["a"]
    assert texts(shown, f"{FIRST} table.scores tbody th") == ["mlp-transformer"]
    shown.type("#words", "no such model")
    assert texts(shown, "#nothing") != []
    assert texts(shown, ".board") == []


def test_a_task_and_a_protocol_can_be_chosen(shown: Browser) -> None:
    choose(shown, "task", "low-entropy")
    assert texts(shown, ".board h2") == ["low-entropy v1"]
    choose(shown, "task", "")
    choose(shown, "protocol", "quick")
    assert texts(shown, ".board h2") == ["bigram v1"]
    assert texts(shown, ".contents li[data-table] a") == ["bigram, quick"]


def choose(window: Browser, name: str, value: str) -> None:
    window.run(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input', {bubbles: true}))", name, value
    )  # fmt: skip


def test_counting_without_embeddings_changes_tables_and_plots(shown: Browser, data: Any) -> None:
    bits = data["tables"][0]["rows"][0]["bits_per_parameter"]
    column = f"{FIRST} {ROWS}:first-child td:nth-child(7)"
    assert texts(shown, column) == [f"{bits:.2f}"]
    choose(shown, "counting", "without-embeddings")
    assert texts(shown, column) == [f"{2 * bits:.2f}"]
    assert texts(shown, f"{FIRST} figcaption")[0] == "Accuracy against parameters without embeddings"


def test_a_point_shows_its_numbers_to_the_pointer(shown: Browser) -> None:
    assert tip(shown) == ""
    shown.hover(f"{POINT}[aria-label^='aot d=128']")
    for part in ("aot", "d=128", "accuracy 0.9340 (0.924-0.944)", "12,800 parameters, 6,400 without embeddings"):
        assert part in tip(shown)
    shown.press("Escape")
    assert tip(shown) == ""


def test_a_point_shows_its_numbers_to_the_keyboard(shown: Browser) -> None:
    shown.run("document.querySelector(arguments[0]).focus()", f"{POINT}[tabindex='0']")
    assert HOSTILE in tip(shown)  # the first name
    shown.press("ArrowRight")
    assert "d=8\n" in tip(shown)
    assert shown.run("return document.activeElement.getAttribute('aria-describedby')") == "tip"
    shown.press("Enter")
    assert shown.run("return document.querySelector('tr:target th.name small').textContent") == "d=8"


def test_a_heading_says_what_its_column_means(shown: Browser) -> None:
    shown.run("document.querySelector(arguments[0]).focus()", f"{head('chance')} button")
    assert tip(shown) == "Accuracy of a uniform guess."


def test_a_panel_opens_from_a_name_with_its_curve_and_command(shown: Browser) -> None:
    shown.click(f"{FIRST} {ROWS}:first-child th.name a")
    shown.settle()
    assert shown.run("return [...document.querySelectorAll('details[open] h3')].map((e) => e.textContent.trim())") == [
        "aot"
    ]
    assert len(texts(shown, "details[open] .small figcaption")) == 3
    assert texts(shown, "details[open] pre")[0].startswith("membench run --model aot --task bigram")


def background(window: Browser) -> str:
    colour: str = window.run("return getComputedStyle(document.body).backgroundColor")
    return colour


def test_the_theme_follows_the_system_and_the_button(shown: Browser) -> None:
    light = background(shown)
    assert texts(shown, "#theme") == ["Dark theme"]
    shown.click("#theme")
    dark = background(shown)
    assert (dark != light, texts(shown, "#theme")) == (True, ["Light theme"])
    shown.click("#theme")
    assert background(shown) == light
    shown.run("delete document.documentElement.dataset.theme; localStorage.clear()")
    shown.prefer(prefers_color_scheme="dark")
    assert background(shown) == dark


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways(shown: Browser, width: int) -> None:
    shown.resize(width)
    shown.run("for (const panel of document.querySelectorAll('#architectures details')) panel.open = true")
    assert len(texts(shown, "#architectures details[open]")) == 5
    shown.settle()
    assert shown.run("return document.documentElement.scrollWidth <= innerWidth")
    if width == 360:
        assert any(each(shown, ".scroll", "e.scrollWidth > e.clientWidth"))  # the tables do, in boxes of their own


def test_plots_are_named_and_described(shown: Browser) -> None:
    what = "e.getAttribute('aria-labelledby').split(' ').map((id) => document.getElementById(id).textContent)"
    described = each(shown, ".plots svg", what)
    assert len(described) == 2 + 2 + 3
    assert described[0][0] == "Accuracy against parameters"
    assert "aot: 3 points, accuracy over all facts from 0.314 to 0.934" in described[0][1]


def test_without_scripts_the_tables_are_there(window: Browser, data: Any, path: Path) -> None:
    window.scripts(False)
    try:
        window.open(path)
        assert names(window) == [row["architecture"] for row in data["tables"][0]["rows"]]
        assert texts(window, "#controls") == []
        assert "Without JavaScript" in texts(window, "noscript")[0]
    finally:
        window.scripts(True)


# ---- tracks -------------------------------------------------------------------------------------------------

TRACK = "#track-accuracy"


@pytest.fixture(scope="module")
def tracks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tracks") / "board.html"
    file.write_text(page(track_board()), encoding="utf-8")
    return file


@pytest.fixture
def board(window: Browser, tracks: Path) -> Browser:
    window.prefer(prefers_color_scheme="light")
    window.resize(1280)
    window.open(tracks)
    return window


def test_each_task_of_a_track_has_a_plot_with_every_size(board: Browser) -> None:
    assert texts(board, f"{TRACK} .multiples figcaption") == ["bigram", "ngram", "zipf"]
    assert len(each(board, f"{TRACK} .multiples figure:first-child svg a", "e.href")) == 3 * 9
    assert board.console() == []


def test_curves_are_drawn_over_another_cost(board: Browser) -> None:
    words = f"{TRACK} .multiples figure:first-child svg"
    assert "parameters" in texts_of(board, words)
    before = places_of(board)
    choose(board, "axis", "active")
    assert "active parameters" in texts_of(board, words)
    assert len(places_of(board)) == len(before)
    assert places_of(board) != before
    link = board.run("return document.getElementById('link').getAttribute('href')")
    assert "axis=active" in link
    choose(board, "axis", "")
    board.run("location.hash = arguments[0]", link)
    board.settle()
    assert board.run("return document.getElementById('axis').value") == "active"


def texts_of(window: Browser, css: str) -> str:
    found: str = window.run("return document.querySelector(arguments[0]).textContent", css)
    return found


def places_of(window: Browser) -> list[str]:
    return each(window, f"{TRACK} .multiples figure:first-child svg a", "e.getAttribute('transform')")


def test_a_point_of_a_track_says_its_row_and_its_command(board: Browser) -> None:
    board.hover(f"{TRACK} .multiples figure:first-child svg a")
    board.settle()
    assert "CPU seconds" in texts_of(board, "#tip")
    assert texts_of(board, "#tip code").startswith("membench run --model ")


def test_two_architectures_are_compared_side_by_side(board: Browser) -> None:
    choose(board, "one", "aot")
    choose(board, "other", "mlp-transformer")
    board.settle()
    heads = texts(board, "#pair thead th")
    assert [head.strip() for head in heads[1:3]] == ["aot", "mlp-transformer"]
    assert len(texts(board, "#pair tbody tr")) == 3 + 3 + 3
    assert "one=" not in board.run("return location.hash")  # the first of the list
    assert "other=mlp-transformer" in board.run("return location.hash")


def rows_taken_away(window: Browser) -> list[dict[str, str]]:
    """What the button for CSV would have put into a file."""
    window.run("URL.createObjectURL = (blob) => { window.taken = blob; return '#'; }")
    window.click("#csv")
    text = window.run("return window.taken.text()")
    return list(csv.DictReader(io.StringIO(text)))


def test_the_rows_that_are_shown_can_be_taken_away(board: Browser) -> None:
    told = [
        (track["track"], cell["id"], cell["config"], cell["command"], str(cell["parameters"]))
        for track in track_board()["tracks"] for row in track["rows"] for one in row["tasks"].values()
        for cell in one["sizes"]
    ]  # fmt: skip
    rows = rows_taken_away(board)
    keys = ("track", "id", "config", "command", "parameters")
    taken = [tuple(row[key] for key in keys) for row in rows if row["track"]]
    assert sorted(taken) == sorted((*one[:4], one[4].removesuffix(".0")) for one in told)
    board.type("#words", "lookup")
    assert {row["architecture"] for row in rows_taken_away(board)} == {"lookup"}


def test_every_table_is_printed(board: Browser) -> None:
    assert (
        board.run(
            "dispatchEvent(new Event('beforeprint')); return document.querySelectorAll('details:not([open])').length"
        )
        == 0
    )
    board.run("dispatchEvent(new Event('afterprint'))")
    assert board.run("return document.querySelectorAll('details[open]').length") == 0
