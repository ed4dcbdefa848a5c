"""Origin: which code a declaration is. A record says it, and is only found again while that code is here."""

from __future__ import annotations

import ast
import bz2
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

BUILT_IN = "membench"  # the distribution whose names nobody else can take
HERE = "this process"  # in place of a distribution, for a class that no file holds
SOURCES = (".py", ".cpp", ".hpp", ".c", ".h")


@dataclass(frozen=True)
class Origin:
    """Where a declaration came from; the registry sets it."""

    distribution: str = ""  # or the path of a plugin file
    version: str = ""  # of the distribution
    commit: str | None = None  # of the installed source, when pip knows it
    code_sha256: str | None = None  # of code that can change without a new version: a file, or an editable install

    @property
    def is_built_in(self) -> bool:
        return self.distribution == BUILT_IN

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


@dataclass(frozen=True)
class Code:
    """What is known of the code behind a name, without the code."""

    name: str
    version: int
    origin: Origin


UNKNOWN = Origin()  # of a declaration that no registry has seen


def origin_of(distribution: Distribution | None, module: str) -> Origin:
    """Of a plugin that is installed, whose entry point names this module."""
    if distribution is None:
        return Origin("unknown")
    installed = _direct_url(distribution)
    editable = installed.get("dir_info", {}).get("editable") and distribution.name != BUILT_IN
    return Origin(
        distribution.name,
        distribution.version,
        installed.get("vcs_info", {}).get("commit_id"),
        _digest_of_package(module) if editable else None,
    )


def origin_of_file(path: Path, target: str | None = None) -> Origin:
    """Of a plugin file, or of a class in a file; with the modules beside it that it imports."""
    name = f"{path}:{target}" if target else str(path)
    files = files_of(path)
    digest = hashlib.sha256(path.read_bytes())
    for file in files[1:]:
        digest.update(f"{file.relative_to(path.parent).as_posix()}\0".encode() + file.read_bytes())
    return Origin(name, code_sha256=digest.hexdigest())


def files_of(path: Path) -> list[Path]:
    """A plugin file and, after it, the modules beside it that it imports, directly or through each other."""
    found, waiting = [path], [path]
    while waiting:
        for file in _imported_beside(waiting.pop(), path.parent):
            if file not in found:
                found.append(file)
                waiting.append(file)
    return [path, *sorted(found[1:])]


def _imported_beside(path: Path, folder: Path) -> Iterator[Path]:
    """Found by reading, not by running: some are only imported when a model is built."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # importing it will say what is wrong
        return
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    for name in sorted(names):
        top = folder / name.partition(".")[0]
        # not Path.is_file, which raises for a name that is too long for a file
        if os.path.isfile(top.with_suffix(".py")):
            yield top.with_suffix(".py")
        elif os.path.isfile(top / "__init__.py"):
            yield from sorted(top.rglob("*.py"))


def origin_of_object(target: Callable[..., Any]) -> Origin:
    """Of a class or function of this process, known by its bytecode: a notebook has no file to look at."""
    digest = hashlib.sha256()
    for code in _codes(target):
        _update(digest, code)
    return Origin(HERE, code_sha256=digest.hexdigest())


def _direct_url(distribution: Distribution) -> dict[str, Any]:
    """What pip noted when it did not install from an index: version control, or a folder."""
    try:
        found = json.loads(distribution.read_text("direct_url.json") or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(found.get(key, {}), dict) for key in _PARTS) else {}


_PARTS = ("vcs_info", "dir_info")


def files_of_package(module: str) -> list[Path]:
    """All files of the package that a module is in, found without importing it; none if it is not there."""
    try:
        spec = find_spec(module.partition(".")[0])
    except ValueError:  # of a module that was made in this process
        return []
    if spec is None:
        return []
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = sorted(file for folder in folders for file in folder.rglob("*") if file.is_file())
    files = [file for file in files if file.parent.name != "__pycache__"]
    return files or ([Path(spec.origin)] if spec.origin else [])


def compressed_bytes(files: Iterable[Path]) -> int:
    """Of files together, data among them too: any could hold answers.

    By bzip2, whose output depends on no version: a verifier gets the same number.
    """
    return len(bz2.compress(b"".join(file.read_bytes() for file in files)))


def _digest_of_package(module: str) -> str | None:
    """Of all sources of the package that a module is in."""
    files = files_of_package(module)
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        if file.suffix in SOURCES:
            digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _codes(target: Any) -> Iterator[CodeType]:
    """The code of a function, or of all methods of a class and of its bases that are defined beside it."""
    if hasattr(target, "__code__"):
        yield target.__code__
    for kind in getattr(target, "__mro__", ()):
        if kind.__module__ == target.__module__:
            for value in vars(kind).values():
                function = getattr(value, "__func__", value)  # of a class method or a static one
                if hasattr(function, "__code__"):
                    yield function.__code__


def _update(digest: Any, code: CodeType) -> None:
    """Names and constants too, but neither file nor line: running a cell again changes nothing."""
    digest.update(code.co_code + repr(code.co_names).encode())
    for constant in _flat(code.co_consts):
        if isinstance(constant, CodeType):
            _update(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _flat(constants: Iterable[Any]) -> Iterator[Any]:
    for constant in constants:
        if isinstance(constant, frozenset):
            yield sorted(map(repr, constant))  # whose order is another in each process
        else:
            yield constant
