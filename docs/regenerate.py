"""Writes the outputs and figures of docs/reproduction.md again: python docs/regenerate.py

Each comment `<!-- $ membench ... -->` in the page names a command; the block of text after it is what the
command prints. All of them use the records that come with membench, so that this trains nothing.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from pathlib import Path

from click.testing import CliRunner

from membench.cli import cli

PAGE = Path(__file__).with_name("reproduction.md")
FIGURES = Path(__file__).with_name("figures")
BLOCK = re.compile(r"(<!-- \$ membench (?P<words>[^\n]*) -->\n```text\n)(?P<output>.*?)(```\n)", re.S)


def output_of(words: str, figures: Path) -> str:
    """What a command prints at a width of 100, but for the names of the files that it wrote."""
    command = [*shlex.split(words), "--figures", str(figures)]
    result = CliRunner(env={"COLUMNS": "100"}).invoke(cli, command, catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(f"membench {words}: {result.output}")
    lines = [line.rstrip() for line in result.output.splitlines() if not line.startswith("wrote ")]
    return "\n".join(lines).strip("\n") + "\n"


def main() -> None:
    text = PAGE.read_text("utf-8")
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        text = BLOCK.sub(lambda found: found[1] + output_of(found["words"], Path(folder)) + found[4], text)
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, FIGURES)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
