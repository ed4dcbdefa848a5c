from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from membench.analysis.escape_markdown import escape

RENDER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TEXTS = st.text(st.sampled_from("ab1 .)(_*`~[]<>|\\&#+-=!$:@/x\n\t\x1b") | st.characters(), max_size=20)


class Rendered(HTMLParser):
    """What a reader sees, and the elements that it took."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self.feed(RENDER.render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(text: str) -> str:
    """The text as it is when it is neither markup nor control characters: in one line."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))


@given(TEXTS)
def test_text_is_read_as_it_is_and_makes_no_element(text: str) -> None:
    found = Rendered(escape(text))
    assert found.text.strip() == seen(text)
    assert found.tags <= {"p"}


@given(TEXTS)
def test_text_stays_in_its_cell(text: str) -> None:
    found = Rendered(f"| a | b |\n|---|---|\n| {escape(text)} | end |\n")
    assert found.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    assert found.text.split() == ["a", "b", *seen(text).split(), "end"]


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("d=9 d_h=9 layers=1", "d=9 d_h=9 layers=1"),
        ("0.1.0", "0.1.0"),
        ("_it_", r"\_it\_"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("a|b\nc", r"a\|b c"),
        ("- x", r"\- x"),
        ("1. x", r"1\. x"),
        ("https://evil.example www.evil.example a@evil.example",
         "https&#58;//evil.example www&#46;evil.example a&#64;evil.example"),
    ],
)  # fmt: skip
def test_only_what_would_be_acted_on_is_escaped(text: str, markdown: str) -> None:
    assert escape(text) == markdown
