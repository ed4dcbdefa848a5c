"""Where a number was obtained: versions, machine, and the state of the working folder."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from membench import __version__


def describe_environment(device: str, threads: int, dtype: str, packages: Iterable[str] = ()) -> dict[str, Any]:
    """`packages` are those that the architecture wraps."""
    return {
        "membench": __version__,
        "python": platform.python_version(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "threads": threads,
        "device": device,
        "dtype": dtype,
        **versions_of(packages),
    }


def versions_of(packages: Iterable[str]) -> dict[str, str | None]:
    return {name: _version(name) for name in packages}


@functools.cache  # it reads files
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@functools.cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@functools.cache
def describe_git() -> dict[str, Any]:
    """Commit of the folder that membench is run from, and whether it has uncommitted changes."""
    commit = _git("rev-parse", "HEAD")
    return {"commit": commit, "dirty": bool(_git("status", "--porcelain")) if commit else None}


def _git(*words: str) -> str | None:
    # Optional locks are off so that reading the status never gets in the way of the user's own git.
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, env=env, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
