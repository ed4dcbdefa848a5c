"""Text of records and plugins in Markdown documents: shown as it is, and never acted on."""

from __future__ import annotations

import re

# What Markdown acts on anywhere in a line. An underscore within a word, as in d_h, is not part of that.
_MARKS = re.compile(r"[\\`*|\[\]~$]|(?<![^\W_])_|_(?![^\W_])")
_TAGS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# What GitHub makes links of without being asked: addresses of the web and of mail.
_LINKS = {"://": "&#58;//", "www.": "www&#46;", "@": "&#64;"}
# What makes a heading, an item or a rule of a line that begins with it.
_BEGINNING = re.compile(r"^(?:[#+=-]|\d{1,9}(?=[.)](?:\s|$)))")


def escape(text: object) -> str:
    """Text in one line, with nothing that Markdown or HTML would take for its own."""
    line = " ".join(str(text).split())
    line = "".join(_TAGS.get(letter, letter) if letter.isprintable() else "\ufffd" for letter in line)
    line = _MARKS.sub(r"\\\g<0>", line)
    for mark, harmless in _LINKS.items():
        line = line.replace(mark, harmless)
    return _BEGINNING.sub(_escape_beginning, line)


def _escape_beginning(match: re.Match[str]) -> str:
    return f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}"
