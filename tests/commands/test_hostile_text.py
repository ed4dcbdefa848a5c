"""Text of plugins and records in terminals and files, files that are none, and what exit codes say of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from samples import make_record

from membench.errors import UsageError
from membench.printing import as_json, cell, printable
from membench.records.files import write_atomically

CLI = Callable[..., subprocess.CompletedProcess[str]]
PLUGIN = r"""
from dataclasses import dataclass
from membench.api import Architecture, hookimpl, option

@dataclass(frozen=True)
class Config:
    d: int = option(4, help="[/red] \x1b[2J")

@hookimpl
def membench_architectures():
    hostile = "[/bold] [red]s \x1b[31m \x1b]0;title\x07 \x9b2J"
    return [Architecture(name="hostile", summary=hostile, reference=hostile, config=Config, build=lambda *given: None)]
"""


def harmless(done: subprocess.CompletedProcess[str]) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in done.stdout + done.stderr)


def test_a_summary_can_neither_break_a_listing_nor_reach_the_terminal(membench: CLI, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(PLUGIN, encoding="utf-8")
    for words in (["models"], ["models", "hostile"], ["models", "--json"]):
        done = membench(*words, "--plugin", "hostile.py")
        assert (done.returncode, harmless(done)) == (0, True), done.stderr
        assert "hostile" in done.stdout


def test_a_record_can_neither_reach_the_terminal_nor_be_a_formula(membench: CLI, tmp_path: Path) -> None:
    label = "=cmd|' /C calc'!A0 \x1b[31m\x9b2J"
    record = make_record(architecture={"name": "aot", "config": {"d": 1}, "label": label})
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.json").write_text(record.to_json())
    for form in ("table", "markdown", "csv", "json"):
        done = membench("leaderboard", "results", "--rows", "--format", form)
        assert (done.returncode, harmless(done)) == (0, True), done.stderr
        assert ",=cmd" not in done.stdout
    assert cell("@x") == "'@x"
    assert cell(-1.5) == -1.5


def test_control_characters_are_shown_as_what_they_are() -> None:
    assert printable("a\x1b[31m\x9bb\n") == "a\ufffd[31m\ufffdb\ufffd"
    assert json.loads(as_json({"a": "\x1b\x9b\u2028"})) == {"a": "\x1b\x9b\u2028"}
    assert as_json("\x1b\x9b").isascii()


def test_what_is_no_regular_file_is_never_replaced(membench: CLI, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = membench("report", "--out", "pipe")
    assert (done.returncode, "cannot write 'pipe': it is not a regular file" in done.stderr) == (2, True)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to(os.devnull)
    with pytest.raises(OSError, match="not a regular file"):
        write_atomically(tmp_path / "link", "x")
    assert Path(os.devnull).is_char_device()


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_not_a_regression(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "membench.cli", "tasks", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "membench: No space left on device\n")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no file that nobody can read here")
def test_a_file_that_the_system_does_not_let_us_read_is_not_a_usage_error(membench: CLI) -> None:
    done = membench("leaderboard", "/proc/self/mem")
    assert (done.returncode, done.stderr) == (3, "membench: '/proc/self/mem': it cannot be read: Input/output error\n")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "membench.cli", "tasks", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_could_not_be_checked_has_an_exit_code_of_its_own(membench: CLI, tmp_path: Path) -> None:
    from membench.plan.trial import Point

    record = make_record()
    (tmp_path / "results").mkdir()
    named = make_record(id=Point.of(record).id)
    (tmp_path / "results" / "a.json").write_text(named.to_json())
    done = membench("verify", "results")
    assert (done.returncode, "1 cannot be checked" in done.stdout) == (4, True), done.stderr
    (tmp_path / "results" / "b.json").write_text(record.to_json())
    assert membench("verify", "results").returncode == 1


def test_a_figure_is_not_drawn_over_a_device(tmp_path: Path) -> None:
    from membench.analysis.figure_style import _write

    (tmp_path / "x.png").symlink_to(os.devnull)
    with pytest.raises(UsageError, match="not a regular file"):
        _write(SimpleNamespace(savefig=lambda *given, **more: None), tmp_path / "x.png")


RAW = """
import ctypes
import os

os.write(1, b"raw \\x1b[31m garbage\\n")
os.write(2, b"raw \\x1b[2J trouble\\n")
ctypes.CDLL(None).printf(b"of a library \\x1b[2J\\n")
from membench.api import hookimpl


@hookimpl
def membench_architectures():
    os.write(1, b"raw \\x1b[31m from a hook\\n")
    return []
"""


def test_what_a_plugin_writes_past_python_is_no_part_of_the_output(
    membench: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "raw.py").write_text(RAW, encoding="utf-8")
    done = membench("models", "--json", "--plugin", "raw.py")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) > 5
    for words in ("garbage", "trouble", "of a library", "from a hook"):
        assert words in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "words", [["models", "--plugin", "closed.py"], ["run", "--model", "closed.py:X", "--task", "bigram"],
              ["leaderboard", "closed.json"], ["leaderboard", "closed"], ["submit", "closed"], ["verify", "closed"]],
)  # fmt: skip
def test_what_the_system_does_not_let_us_read_is_nobodys_mistake(words: list[str], tmp_path: Path) -> None:
    for name in ("closed.py", "closed.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "closed").mkdir()
    command = [sys.executable, "-m", "membench.cli", *words]
    for name in ("closed.py", "closed.json", "closed"):
        (tmp_path / name).chmod(0)
        if os.geteuid() == 0:
            os.chown(tmp_path / name, 65534, 65534)
    if os.geteuid() == 0:  # whom nothing is closed to but for these
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv")
        powers = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}", *command]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 3, done.stderr
    assert "Permission denied" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_pipe_behind_the_link_of_a_standard_stream_is_no_file_to_write(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "membench.cli", "report", "--out", "/dev/stdout"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot write '/dev/stdout': it is not a regular file" in done.stderr
