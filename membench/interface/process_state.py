"""The state of a process that a plugin could change for everybody after it: kept as it was."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Working folder, environment, signals, warnings, random generators, and what torch has for all its users.

    What a plugin replaces in other modules stays replaced: only a process of its own keeps that from others.
    """
    undo = [_folder(), _environment(), _signals(), _random(), _numpy(), _torch()]
    with ExitStack() as stack:
        for step in undo:
            stack.callback(step)
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(np.errstate())
        yield


def _folder() -> Callable[[], None]:
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        return lambda: None
    return lambda: os.chdir(folder)


def _environment() -> Callable[[], None]:
    before = dict(os.environ)

    def restore() -> None:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return restore


def _signals() -> Callable[[], None]:
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread may change what a signal does, and so nobody did
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)

    return restore


def _random() -> Callable[[], None]:
    state = random.getstate()
    return lambda: random.setstate(state)


def _numpy() -> Callable[[], None]:
    state = np.random.get_state()
    return lambda: np.random.set_state(state)


def _torch() -> Callable[[], None]:
    """Of torch, which may not be here yet; then what it starts with is restored."""
    before = _settings(sys.modules["torch"]) if "torch" in sys.modules else None

    def restore() -> None:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "set_grad_enabled"):  # its import failed halfway
            return
        fresh = {"dtype": torch.float32, "grad": True, "deterministic": (False, False), "matmul": "highest"}
        settings = before or fresh
        torch.set_default_dtype(settings["dtype"])
        torch.set_grad_enabled(settings["grad"])
        if _deterministic(torch) != settings["deterministic"]:  # only then: the call imports torch's compiler
            deterministic, warn_only = settings["deterministic"]
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_float32_matmul_precision(settings["matmul"])
        if torch.get_default_device().type != settings.get("device", "cpu"):
            torch.set_default_device(settings.get("device"))
        if "threads" in settings and torch.get_num_threads() != settings["threads"]:
            torch.set_num_threads(settings["threads"])
        if "generator" in settings:
            torch.random.set_rng_state(settings["generator"])

    return restore


def _deterministic(torch: Any) -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _settings(torch: Any) -> dict[str, Any]:
    return {
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "deterministic": _deterministic(torch),
        "matmul": torch.get_float32_matmul_precision(),
        "device": torch.get_default_device().type,
        "threads": torch.get_num_threads(),
        "generator": torch.random.get_rng_state(),
    }
