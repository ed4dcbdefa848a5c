from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from membench.engine import compiler
from membench.engine.compiler import cache_folder, find_compiler, library
from membench.errors import NotApplicable

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cpp"
    path.write_text(SOURCE)
    return path


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_a_source_is_compiled_once(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library(source).answer() == 42
    (kept,) = cache.iterdir()
    monkeypatch.setattr(compiler, "_compile", None)  # a second compilation would call it
    assert library(source)._name == str(kept)


def test_a_changed_source_is_compiled_again(source: Path, cache: Path) -> None:
    assert library(source).answer() == 42
    source.write_text(SOURCE.replace("42", "43"))
    assert library(source).answer() == 43
    assert len(list(cache.iterdir())) == 2


def test_a_changed_header_is_compiled_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "HEADERS", tmp_path)
    source.write_text('#include "some.hpp"\n' + SOURCE.replace("42", "ANSWER"))
    for value in (1, 2):
        (tmp_path / "some.hpp").write_text(f"#define ANSWER {value}\n")
        assert library(source).answer() == value


def test_a_source_with_a_mistake_is_not_applicable(source: Path, cache: Path) -> None:
    source.write_text(SOURCE.replace("42", "UNKNOWN"))
    with pytest.raises(NotApplicable, match=r"could not compile the kernel: .*kernel\.cpp.*answer"):
        library(source)
    assert list(cache.iterdir()) == []


def test_without_a_compiler_it_is_not_applicable(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent")
    with pytest.raises(NotApplicable, match="no C\\+\\+ compiler found: looked for /nonexistent"):
        library(source)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotApplicable, match="looked for c\\+\\+, g\\+\\+, clang\\+\\+"):
        library(source)


def test_the_compiler_is_what_the_user_chose(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = script(tmp_path / "mine", 'exec c++ "$@"\n')
    source.write_text(SOURCE.replace("42", "ANSWER"))
    monkeypatch.setenv("CXX", f"{mine} -DANSWER=7")
    assert find_compiler() == (str(mine), "-DANSWER=7")
    assert library(source).answer() == 7


def test_a_compiler_that_does_not_know_its_processor_will_do(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = 'for word; do case "$word" in *=native) echo "bad value" >&2; exit 1;; esac; done\nexec c++ "$@"\n'
    monkeypatch.setenv("CXX", str(script(tmp_path / "old", refusal)))
    assert library(source).answer() == 42


def test_a_library_that_does_not_load_is_not_applicable(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = 'for last; do :; done; [ "$last" = --version ] || echo "no library" > "$last"\n'
    monkeypatch.setenv("CXX", str(script(source.parent / "cc", broken)))
    with pytest.raises(NotApplicable, match="cannot load the compiled kernel"):
        library(source)


def truncate(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:5000])


def fill_with_garbage(kept: Path) -> None:
    kept.write_bytes(b"\x7fELF garbage")


def open_to_all(kept: Path) -> None:
    kept.chmod(0o777)


def give_away(kept: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(kept, 12345, 12345)


@pytest.mark.parametrize("spoil", [truncate, fill_with_garbage, open_to_all, give_away])
def test_a_kept_library_that_cannot_be_trusted_is_made_again(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    program = "import sys, pathlib; from membench.engine.compiler import library; " \
              "print(library(pathlib.Path(sys.argv[1])).answer())"  # fmt: skip
    command = [sys.executable, "-c", program, str(source)]  # where half a library ends no test
    for _ in range(2):
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "42\n"
        (kept,) = cache.iterdir()
        assert compiler._is_sound(kept)
        spoil(kept)
        assert not compiler._is_sound(kept)


def test_a_compiler_that_hangs_is_not_waited_for(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = 'case "$1" in --version) exec c++ --version;; esac\nsleep 600\n'
    monkeypatch.setenv("CXX", str(script(tmp_path / "hanging", hanging)))
    monkeypatch.setattr(compiler, "MAX_SECONDS", 1.0)
    with pytest.raises(NotApplicable, match="hanging took more than 1 s"):
        library(source)


def test_a_cache_that_cannot_be_written_is_not_applicable(source: Path, cache: Path) -> None:
    cache.write_text("a file where a folder should be")
    with pytest.raises(NotApplicable, match="cannot keep a compiled kernel"):
        library(source)


def test_processes_may_compile_at_the_same_time(source: Path, cache: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from membench.engine.compiler import library\n"
        "print(library(pathlib.Path(sys.argv[1])).answer())\n"
    )
    command = [sys.executable, "-c", code, str(source)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(4)]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == ["42"] * 4
    assert [path.suffix for path in cache.iterdir()] == [".so"]


def test_the_cache_is_where_users_expect_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMBENCH_CACHE", "/chosen")
    assert cache_folder() == Path("/chosen")
    monkeypatch.delenv("MEMBENCH_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/membench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "membench"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "membench"
