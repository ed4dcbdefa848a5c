"""What `membench new` does: a plugin package from templates, complete and installable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from membench import __version__
from membench.errors import UsageError
from membench.interface.registry import Registry

KINDS = {"architecture": "an architecture", "task": "a task", "bound": "a bound"}
SUFFIX = ".template"
NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,48}[A-Za-z0-9])?")


def new(name: str, kind: str, out: Path | None, registry: Registry) -> list[Path]:
    """Write the package and say which files it has. UsageError for a name or a folder that cannot be used."""
    project, package = f"membench-{name}", f"membench_{re.sub(r'[-.]', '_', name)}"
    _check_name(name, kind, package, registry)
    folder = out or Path(project)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"'{folder}' is there already and not an empty folder; choose another with --out")
    words = {"name": name, "project": project, "package": package, "version": __version__, "kind": KINDS[kind]}
    written = []
    for place, text in sorted(_templates(kind).items()):
        path = folder / _filled(place, words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(text, words), encoding="utf-8")
        written.append(path)
    return written


def _check_name(name: str, kind: str, package: str, registry: Registry) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"the name {name!r} cannot be used: a name starts with a letter, goes on with at most 49 letters, digits, "
            "'-' and '_', and ends with a letter or digit, such as my-arch"
        )
    there: dict[str, list[Any]] = {
        "architecture": list(registry.architectures.values()),
        "task": list(registry.tasks.values()),
        "bound": registry.bounds,
    }
    for one in there[kind]:
        if one.name == name:
            raise UsageError(f"the name '{name}' is taken: {KINDS[kind]} of {one.origin} has it; choose another")
    if name in {plugin.name for plugin in registry.plugins}:
        raise UsageError(f"the name '{name}' is taken by a plugin (see: membench plugins); choose another")
    if find_spec(package) or _is_installed(f"membench-{name}"):
        raise UsageError(f"the name '{name}' is taken: a package '{package}' is installed; choose another")


def _is_installed(project: str) -> bool:
    try:
        return bool(distribution(project))
    except PackageNotFoundError:
        return False


def _templates(kind: str) -> dict[str, str]:
    """Texts by their paths, as they are in the package data; what a kind has itself takes the place of the common."""
    root = files("membench.scaffold")
    return {place: text for part in ("any", kind) for place, text in _texts(root / part, PurePosixPath())}


def _texts(folder: Traversable, place: PurePosixPath) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        inside = place / entry.name.replace("dot-", ".", 1).removesuffix(SUFFIX)
        if entry.is_dir():
            yield from _texts(entry, inside)
        elif entry.name.endswith(SUFFIX):
            yield str(inside), entry.read_text("utf-8")


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text
