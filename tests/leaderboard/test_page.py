from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from boards import HOSTILE, full_board, sample_board, sample_records, sample_rows, trials
from click.testing import CliRunner
from jinja2 import UndefinedError

import membench_leaderboard
from membench.analysis.figure_style import COLOURS, MARKERS
from membench.commands.leaderboard import leaderboard
from membench.commands.report import report
from membench.errors import UsageError
from membench.records.store import Entry
from membench_leaderboard.data import board_data
from membench_leaderboard.page import brief, page
from membench_leaderboard.page.columnar import packed, shortened, whole
from membench_leaderboard.terminal import boards

PARTS = Path(membench_leaderboard.__file__).parent / "page"
VOID = {"meta", "link", "input", "br"}
CELLS = {"td", "th"}
NASTY = "</script><img src=x onerror=alert(2)>\"'&<!--version--><!--data-->\u2028"


class Document(HTMLParser):
    """A page as a browser without scripts sees it: elements with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[dict[str, Any]] = []
        self._open: list[dict[str, Any]] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in CELLS:
            self._end_cell()
        element = {"tag": tag, "text": "", "within": [one["tag"] for one in self._open], **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self._end_cell()
        assert self._open.pop()["tag"] == tag

    def _end_cell(self) -> None:
        """A cell needs no end of its own: the next one, or that of the row, is enough."""
        if self._open[-1]["tag"] in CELLS:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element["text"] += data

    def all(self, tag: str) -> list[dict[str, Any]]:
        return [element for element in self.elements if element["tag"] == tag]

    def tables(self, kind: str) -> list[list[list[str]]]:
        """The texts of the cells of each table of a kind, without its head."""
        found: list[list[list[str]]] = []
        for element in self._of(kind):
            if element["tag"] == "table":
                found.append([])
            elif "tbody" in element["within"] and element["tag"] == "tr":
                found[-1].append([])
            elif "tbody" in element["within"] and element["tag"] in ("td", "th"):
                found[-1][-1].append(element["text"])
        return found

    def heads(self, kind: str) -> list[list[str]]:
        """The keys of the columns of each table of a kind."""
        found: list[list[str]] = []
        for element in self._of(kind):
            if element["tag"] == "table":
                found.append([])
            elif "thead" in element["within"] and element["tag"] == "th":
                found[-1].append(element["data-key"])
        return found

    def _of(self, kind: str) -> Iterator[dict[str, Any]]:
        """The tables of a kind, each followed by what is in it."""
        current = ""
        for element in self.elements:
            current = element["class"] if element["tag"] == "table" else current
            if current == kind and "table" in (element["tag"], *element["within"]):
                yield element


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return sample_board()


@pytest.fixture(scope="module")
def text(data: dict[str, Any]) -> str:
    return page(data)


@pytest.fixture(scope="module")
def document(text: str) -> Document:
    return Document(text)


def test_the_tables_have_the_rows_of_the_board_in_its_order(data: dict[str, Any], document: Document) -> None:
    shown = document.tables("rows")
    assert len(shown) == len(data["tables"]) == 3
    for table, rows in zip(data["tables"], shown, strict=True):
        assert [row[-1].partition("membench")[0] for row in rows] == [row["id"] for row in table["rows"]]


TERMINAL = {
    "#": "rank", "accuracy\ninterval": "accuracy", "KL\ninterval": "kl", "facts\nheld": "associations",
    "bits/\nparam": "bits_per_parameter", "lower\nbound": "lower_bound", "zero-\nhead": "zero_head", "chance": "chance",
    "load": "load", "x proven": "ratio_to_bound", "best\npossible": "bayes",
}  # fmt: skip


def test_the_tables_have_the_numbers_of_the_terminal_in_its_order(document: Document) -> None:
    compared = set()
    shown = zip(document.heads("rows"), document.tables("rows"), boards(sample_rows(), width=240), strict=True)
    for keys, rows, board in shown:
        for column in board.columns:
            key = TERMINAL.get(str(column.header))
            if key in keys:
                said = [str(cell).replace("\n", "") for cell in column.cells]
                texts = [row[keys.index(key)] for row in rows]
                # A cell per parameter goes on with the other way to count.
                assert [text[: len(one)] for text, one in zip(texts, said, strict=True)] == said, key
                compared.add(key)
    assert compared == set(TERMINAL.values())


def test_a_table_says_what_it_is_sorted_by(document: Document) -> None:
    sorted_by = {(head["data-key"], head["aria-sort"]) for head in document.all("th") if "aria-sort" in head}
    assert sorted_by == {("accuracy", "descending"), ("kl", "ascending"), ("area", "descending"), ("area", "ascending")}


def test_only_ranked_tables_have_ranks(data: dict[str, Any], document: Document) -> None:
    ranked = [table["ranked"] for table in data["tables"]]
    assert ranked.count(False) == 1
    for table, rows in zip(data["tables"], document.tables("rows"), strict=True):
        assert (rows[0][0].rstrip("=") == "1") == table["ranked"]


def test_numbers_per_parameter_are_there_for_both_ways_to_count(data: dict[str, Any], text: str) -> None:
    row = data["tables"][0]["rows"][0]
    assert row["parameters"] == 2 * row["without_embeddings"]
    every, bare = row["bits_per_parameter"], 2 * row["bits_per_parameter"]
    assert f"<span class=n0>{every:.2f}</span><span class=n1>{bare:.2f}</span>" in text


def spoiled(value: Any) -> Any:
    """Board data in which every text is nasty: all but the keys, and the metric that a table is sorted by."""
    if isinstance(value, dict):
        return {name: one if name == "sorted_by" else spoiled(one) for name, one in value.items()}
    if isinstance(value, list):
        return [spoiled(one) for one in value]
    return f"{NASTY}{value}" if isinstance(value, str) and value else value


def test_every_text_is_text_wherever_it_comes_from() -> None:
    made = spoiled(sample_board())
    made["architectures"] = {f"{NASTY}{name}": about for name, about in made["architectures"].items()}
    document = Document(page(made))
    plain = Document(page(sample_board()))
    assert [one["tag"] for one in document.elements] == [one["tag"] for one in plain.elements]
    assert [set(one) for one in document.elements] == [set(one) for one in plain.elements]
    assert not [one for one in document.elements if any(name.startswith("on") for name in one)]
    assert f"{NASTY}aot" in [one["text"] for one in document.all("h3")]
    assert any(one.get("class") == "note" and one["text"].startswith(NASTY) for one in document.all("p"))
    told = json.loads(document.all("script")[0]["text"])
    assert f"{NASTY}aot" in told["names"]
    assert [unpacked(table["rows"]) for table in told["tables"]] == [
        known(brief(table["rows"])) for table in made["tables"]
    ]


def test_the_templates_escape_all_but_our_own_style_and_script() -> None:
    texts = {path.name: path.read_text("utf-8") for path in PARTS.glob("*.html")}
    assert {"page.html", "tables.html", "panel.html"} <= set(texts)
    unescaped = [
        line for text in texts.values() for line in text.splitlines() if re.search(r"\|\s*safe|autoescape", line)
    ]
    assert unescaped == ["<style>{{ style|safe }}</style>", "<script>{{ script|safe }}</script>"]


def test_a_value_that_a_template_misses_is_an_error() -> None:
    made = sample_board()
    del made["tables"][0]["note"]
    with pytest.raises(UndefinedError):
        page(made)


def test_half_a_character_does_not_stop_the_page() -> None:
    assert page(board_data(trials("half \ud800", 800, 0.3))).encode("utf-8")


def test_the_data_cannot_end_its_element(text: str) -> None:
    (content,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert not set(content) & set("<>&\u2028\u2029")
    assert HOSTILE in {
        row["architecture"] for table in json.loads(content)["tables"] for row in unpacked(table["rows"])
    }


def unpacked(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows again, as page.js makes them, without what is not known."""
    columns = {key: some if isinstance(some, list) else [some["of"][at] for at in some.get("at", [0] * told["count"])]
               for key, some in told["columns"].items()}  # fmt: skip
    rows = [{key: some[place] for key, some in columns.items()} for place in range(told["count"])]
    if shape := told.get("shape"):
        shapes = unpacked(shape["of"])
        rows = [{**row, **shapes[at]} for row, at in zip(rows, shape["at"], strict=True)]
    return known(
        {**row, "command": whole(row["command"], row["config"])} if row.get("command") else row for row in rows
    )


def known(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def test_rows_are_columns_and_rows_again() -> None:
    rows = [
        {"config": "d=3 act='a b'", "command": "membench run --model x -M d=3 -M 'act=a b' --seeds 5", "value": 0.5},
        {"config": "d=3 act='a b'", "command": "membench run --model x -M e --seeds 5", "value": None},
        {"config": "d=4 act='a b'", "command": "membench run --model x -M d=3 -M d=4 --seeds 5", "value": 0.25},
        {"config": "", "command": "", "value": True},
    ]
    assert unpacked(packed(rows)) == known(rows)
    assert unpacked(packed(rows * 5)) == known(rows * 5)
    assert packed([]) == {"count": 0, "columns": {}}


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("run -M d=3 -M H=25 -T N=64", "run -M d -M H -T N=64"),
        ("run -M d=4 -M H=25", "run -M d=4 -M H"),  # not what the config says
    ],
)
def test_commands_are_said_without_what_the_config_says(command: str, short: str) -> None:
    assert shortened(command, "d=3 H=25 layers=1") == short
    assert whole(short, "d=3 H=25 layers=1") == command


def test_the_policy_allows_our_style_and_script_and_nothing_else(document: Document) -> None:
    (policy,) = [one["content"] for one in document.all("meta") if "http-equiv" in one]
    assert policy.startswith("default-src 'none';")
    for element, kind in ((document.all("style")[0], "style-src"), (document.all("script")[1], "script-src")):
        digest = base64.b64encode(hashlib.sha256(element["text"].encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy


def test_nothing_comes_from_elsewhere(document: Document) -> None:
    targets = [one[name] for one in document.elements for name in ("src", "href") if name in one]
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("#") and target != "data:,"] == []
    assert "url(" not in (PARTS / "page.css").read_text("utf-8")


def test_the_script_writes_text_and_never_markup() -> None:
    script = (PARTS / "page.js").read_text("utf-8")
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert name not in script


def test_a_row_that_was_also_published_has_a_place_of_its_own() -> None:
    records = trials("aot", 800, 0.3)
    document = Document(page(board_data([Entry(one, published=yes) for yes in (True, False) for one in records])))
    anchors = [one["id"] for one in document.all("tr") if "id" in one]
    assert sorted(anchors) == [f"row-{records[0].id}", f"row-{records[0].id}-published"]


def test_ids_are_there_once_and_links_lead_to_them(document: Document) -> None:
    ids = [one["id"] for one in document.elements if "id" in one]
    assert len(ids) == len(set(ids))
    wanted = [one["href"][1:] for one in document.all("a") if not one["href"].startswith("#?")]  # those are choices
    wanted += [name for one in document.elements for name in one.get("aria-labelledby", "").split()]
    assert set(wanted) <= set(ids)


def test_the_page_has_landmarks_and_its_tables_captions_and_scopes(document: Document) -> None:
    for tag in ("header", "main", "footer", "h1", "nav"):
        assert len(document.all(tag)) == 1, tag
    assert [one.get("role") for one in document.all("form")] == ["search", None]
    tables, captions = document.all("table"), document.all("caption")
    assert len(tables) == len(captions)
    assert all(caption["text"] for caption in captions)
    assert {head.get("scope") for head in document.all("th")} == {"col", "row"}
    assert all("label" in one["within"] for one in document.all("input") + document.all("select"))


def test_every_architecture_has_a_panel_with_its_citation_and_command(data: dict[str, Any], document: Document) -> None:
    panels = {one["text"]: one for one in document.all("h3") if "summary" in one["within"]}
    assert set(panels) == {"aot", "linear-memory", "lookup", "mlp-transformer", HOSTILE}
    assert "Memorization in Attention-only Transformers" in "".join(
        one["text"] for one in document.all("p") if one.get("class") == "reference"
    )
    commands = {one["text"] for one in document.all("pre")}
    best = data["tables"][0]["rows"][0]
    assert best["command"].startswith("membench run --model aot --task bigram")
    assert best["command"] in commands


def test_colours_and_markers_are_those_of_the_plots() -> None:
    style = (PARTS / "page.css").read_text("utf-8")
    for number, colour in enumerate(COLOURS):
        assert re.search(rf"--look-{number}: (light-dark\()?{colour}\b", style), colour
        assert f".look-{number} {{" in style
    (shapes,) = re.findall(r"const SHAPES = \[(.*?)\];", (PARTS / "page.js").read_text("utf-8"), re.S)
    assert shapes.count('"') == 2 * len(MARKERS)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_edges_can_be_told_from_what_is_behind_them(theme: int) -> None:
    style = (PARTS / "page.css").read_text("utf-8")
    found = {name: pair.split(", ") for name, pair in re.findall(r"--([\w-]+): light-dark\((.*?)\);", style)}
    colours = {name: pair[theme] for name, pair in found.items()}
    for behind in ("paper", "raised", "mark"):
        for name in ("ink", "quiet", "link"):
            assert contrast(colours[name], colours[behind]) >= 4.5, (name, behind)
    assert contrast(colours["edge"], colours["paper"]) >= 3


def test_a_board_of_a_hundred_rows_is_small() -> None:
    records = [one for i in range(100) for one in trials(f"model-{i % 6}", 700 + 100 * i, 0.2 + i / 200)]
    made = board_data(records)
    assert sum(len(table["rows"]) for table in made["tables"]) == 100
    assert len(page(made).encode()) < 250_000


def test_a_board_of_twenty_architectures_on_all_tracks_stays_below_half_a_megabyte() -> None:
    made = full_board(20)
    assert [len(track["rows"]) for track in made["tracks"]] == [20] * 4
    assert sum(
        len(told["sizes"]) for track in made["tracks"] for row in track["rows"] for told in row["tasks"].values()
    ) == (20 * 3 * (3 + 9 + 3 + 9))
    assert len(page(made).encode()) < 500_000


def write(records: list[Any], folder: Path) -> Path:
    folder.mkdir()
    for record in records:
        (folder / f"{record.id}-s{record.seed}.json").write_text(record.to_json())
    return folder


def test_report_writes_the_page_and_opens_it(membench: Any, tmp_path: Path) -> None:
    write(sample_records(), tmp_path / "mine")
    done = membench("report", "mine", "--no-published", "--out", "board.html", "--open", BROWSER="echo opening %s")
    assert done.returncode == 0, done.stderr
    assert "wrote board.html: 11 rows in 3 tables" in done.stdout
    assert f"opening {(tmp_path / 'board.html').as_uri()}" in done.stdout
    assert (tmp_path / "board.html").read_text("utf-8") == page(sample_board())


def test_the_leaderboard_prints_the_same_page(tmp_path: Path) -> None:
    write(sample_records(), tmp_path / "mine")
    done = CliRunner().invoke(leaderboard, [str(tmp_path / "mine"), "--no-published", "--format", "html"])
    assert done.stdout.rstrip("\n") == page(sample_board()).rstrip("\n")


@pytest.mark.parametrize("words", [["nowhere"], ["."], ["--no-published"]])
def test_report_refuses_in_the_words_of_the_leaderboard(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused, expected = (CliRunner().invoke(verb, words).exception for verb in (report, leaderboard))
    assert isinstance(refused, UsageError)
    assert str(refused) == str(expected)


def test_report_says_where_it_cannot_write(tmp_path: Path) -> None:
    folder = write(trials("aot", 800, 0.3), tmp_path / "mine")
    refused = CliRunner().invoke(report, [str(folder), "--out", str(tmp_path / "no" / "board.html")]).exception
    assert isinstance(refused, UsageError)
    assert "board.html': No such file or directory; choose another file with --out" in str(refused)
