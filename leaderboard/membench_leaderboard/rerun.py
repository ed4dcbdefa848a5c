"""The command that makes a record again, in as few words as its names and defaults allow."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from membench.engine.protocols.protocol import PROTOCOLS
from membench.interface.registry import Registry, is_target
from membench.records.record import Record
from membench.records.store import Entry


def rerun_command(record: Record, seeds: Iterable[int], registry: Registry) -> str:
    """`membench run ...` for some seeds of the record's point."""
    architecture, task, protocol = record.architecture, record.task, record.protocol
    known = registry.architectures.get(str(architecture["name"])), registry.tasks.get(str(task["name"]))
    name, version = str(protocol["name"]), protocol["version"]
    setting = next((one for one in PROTOCOLS.values() if (one.name, one.version) == (name, version)), None)
    origin = str(architecture.get("distribution") or "")
    model = origin if is_target(origin) else str(architecture["name"])  # a class in a file is known by both
    words = ["membench", "run", "--model", model, "--task", str(task["name"])]
    words += _options("-M", architecture["config"], known[0].config if known[0] else None)
    words += _options("-T", task["config"], known[1].config if known[1] else None)
    if (chosen := setting.key if setting else name) != "converged":
        words += ["--protocol", chosen]
    words += _options("-P", protocol["config"], setting.config if setting else None)
    words += ["--seeds", _seeds(sorted(seeds))]
    words += ["--floor"] if "excess_kl" in record.metrics else []
    words += [word for part, item in zip((architecture, task), known, strict=True) if not item
              for word in _plugin_file(part)]  # fmt: skip
    return shlex.join(words)


def rerun_commands(entries: Iterable[Entry], registry: Registry) -> dict[tuple[str, bool], str]:
    """For each point, published or not, the command that makes its records again."""
    seeds: dict[tuple[str, bool], dict[int, Record]] = {}
    for entry in entries:
        if entry.record.complete:
            seeds.setdefault((entry.record.id, entry.published), {})[entry.record.seed] = entry.record
    return {key: rerun_command(next(iter(some.values())), some, registry) for key, some in seeds.items()}


def _options(flag: str, values: Any, config: type | None) -> list[str]:
    needed = _needed(values, config) if isinstance(values, Mapping) else {}
    return [word for name, value in needed.items() for word in (flag, f"{name}={_typed(value)}")]


def _needed(values: Mapping[str, Any], config: type | None) -> dict[str, Any]:
    """The options without which the config would be another one."""
    left = {str(name): value for name, value in values.items() if value is not None}
    if config is None:
        return left
    try:
        whole = config(**values)
        for name in list(left):
            fewer = {other: value for other, value in left.items() if other != name}
            if _made(config, fewer) == whole:
                left = fewer
    except (TypeError, ValueError):  # the record's options are not those of the config that is installed
        pass
    return left


def _made(config: type, values: Mapping[str, Any]) -> Any:
    try:
        return config(**values)
    except (TypeError, ValueError):  # one that cannot be left out
        return None


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seeds(seeds: Sequence[int]) -> str:
    """The seeds as --seeds takes them: 5 for 0 to 4, 3:7, or a list."""
    without_gap = all(later == seed + 1 for seed, later in pairwise(seeds))
    if without_gap and seeds[0] == 0:
        return str(len(seeds))
    if without_gap and len(seeds) > 1:
        return f"{seeds[0]}:{seeds[-1]}"
    return f"{seeds[0]}:{seeds[0]}" if len(seeds) == 1 else ",".join(map(str, seeds))


def _plugin_file(part: Mapping[str, Any]) -> list[str]:
    """Plugins that were loaded from a file are known by it."""
    origin = str(part.get("distribution") or "")
    return ["--plugin", origin] if origin.endswith(".py") else []
