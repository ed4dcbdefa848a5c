"""Text of records and plugins on its way to a terminal or a file: shown, and never acted on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_KEPT = "\n\t"
_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")  # what JSON leaves as it is, and a terminal may act on
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes a cell for that begins with it


def printable(text: object) -> str:
    """The text without anything that a terminal would act on, such as a change of colour or of the title."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(text))


def printable_lines(text: object) -> str:
    """The same for text of several lines."""
    return "".join(letter if letter.isprintable() or letter in _KEPT else "\ufffd" for letter in str(text))


def console(**options: Any) -> Console:
    """A console that prints control characters of any text as what they are."""
    from rich.console import Console

    class Printable(Console):
        def render_str(self, text: str, **more: Any) -> Any:
            return super().render_str(printable_lines(text), **more)

    return Printable(highlight=False, **options)


def as_json(value: Any) -> str:
    """Machine-readable, and still harmless to a terminal."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, indent=2, ensure_ascii=False))


def cell(value: Any) -> Any:
    """A value of a CSV file: a text never is a formula, which a spreadsheet would run."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if value.startswith(_FORMULA) else text
