from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from membench import temporary
from membench.errors import FileError, UsageError, cannot_write
from membench.records import files
from membench.records.files import write_atomically, write_named
from membench.records.store import Store
from membench.temporary import remove_leftovers, temporary_file, temporary_folder

WRITER = """
import sys, time
from pathlib import Path
from membench.temporary import temporary_file, temporary_folder

with temporary_file(Path(sys.argv[1], "a-s0.json")), temporary_folder(Path(sys.argv[1], "sent")) as folder:
    (folder / "record.json").touch()
    print("there", flush=True)
    time.sleep(600)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("when", [1, 4_000_000_000])
def test_what_a_killed_writer_left_goes_and_what_a_living_one_holds_stays(tmp_path: Path, when: int) -> None:
    """Whatever the clock says of them."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"there\n"
        for path in tmp_path.iterdir():
            os.utime(path, (when, when))
        held = names(tmp_path)
        assert len(held) == 2
        Store(tmp_path).check()
        assert names(tmp_path) == held
        writer.kill()
    Store(tmp_path).check()
    assert names(tmp_path) == []


def test_only_what_has_such_a_name_is_a_leftover(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    ours = [tmp_path / "below" / ".abc.probes.abcdefg1.part", tmp_path / ".abc-s1.safetensors.abcdefg1.part"]
    others = [tmp_path / name for name in ("mine.part", ".mine.part", "abc-s1.json.abcdefg1.part", ".a.json.x.part")]
    link = tmp_path / ".link.json.abcdefg1.part"
    link.symlink_to(others[0])
    for path in (*ours, *others):
        path.touch()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted(["below", link.name, *(path.name for path in others)])
    assert names(tmp_path / "below") == []


def test_one_target_has_its_own_leftovers_removed(tmp_path: Path) -> None:
    (tmp_path / ".board.html.abcdefgh.part").touch()
    (tmp_path / ".other.html.abcdefgh.part").touch()
    write_named(tmp_path / "board.html", "whole")
    assert names(tmp_path) == [".other.html.abcdefgh.part", "board.html"]


@pytest.mark.parametrize("make", [temporary_file, temporary_folder])
def test_whoever_cleans_up_at_any_moment_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any]
) -> None:
    """Also between the making of a file and its lock: then another is made."""
    real, seen = temporary._lock, []

    def late(handle: int) -> bool | None:
        seen.append(handle)
        if len(seen) == 1:
            remove_leftovers(tmp_path)
        return real(handle)

    monkeypatch.setattr(temporary, "_lock", late)
    with make(tmp_path / "a.json") as found:
        path = found[0] if isinstance(found, tuple) else found
        remove_leftovers(tmp_path)
        assert path.exists()
        assert names(tmp_path) == [path.name]
        if path.is_file():
            path.unlink()
    assert names(tmp_path) == []


def test_a_writer_holds_its_file_until_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def replaced(old: Path, new: Path) -> None:
        remove_leftovers(tmp_path)  # as another driver that starts now
        real(old, new)

    monkeypatch.setattr(os, "replace", replaced)
    write_atomically(tmp_path / "a.json", "whole")
    assert names(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


def test_where_nobody_can_lock_files_are_written_and_none_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(temporary.fcntl, "flock", no_locks)
    (tmp_path / ".a.json.abcdefgh.part").touch()
    write_named(tmp_path / "a.json", "whole")
    assert names(tmp_path) == [".a.json.abcdefgh.part", "a.json"]


def test_a_write_that_fails_leaves_the_old_file_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "board.html"
    path.write_text("old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(FileError) as caught:
        write_named(path, "new", "choose another")
    assert str(caught.value) == f"cannot write '{path}': No space left on device; choose another"
    assert caught.value.exit_code == 3
    assert (names(tmp_path), path.read_text()) == (["board.html"], "old")
    with pytest.raises(OSError, match="No space left on device") as raw:
        write_atomically(path, "new")
    assert raw.value.filename == str(path)


def test_a_name_that_cannot_be_written_is_a_usage_error() -> None:
    for number, kind in ((errno.ENOENT, UsageError), (None, UsageError), (errno.EROFS, FileError)):
        assert type(cannot_write(Path("a"), OSError(number, "words"))) is kind


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), temporary_file(tmp_path / "a"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []
