"""Trial: one architecture config, task config and protocol config with one seed; and its identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from membench.engine.protocols.protocol import Protocol, get_protocol
from membench.errors import UsageError
from membench.interface.declarations import Architecture, Task
from membench.interface.options import to_dict
from membench.interface.registry import Registry

if TYPE_CHECKING:
    from membench.records.record import Record

IDENTITY_RULE = 1  # change it when the same trial would get another id


@dataclass(frozen=True)
class Trial:
    """A unit of work. Its id leaves out the seed, the device and the number of threads."""

    architecture: Architecture[Any]
    config: Any
    task: Task[Any]
    task_config: Any
    protocol: Protocol
    protocol_config: Any
    seed: int

    @classmethod
    def of(cls, point: Point, registry: Registry, seed: int) -> Trial:
        """The trial at a point, with its names looked up.

        UsageError for a name, an option or a version that is not here, because another version is another trial.
        """
        architecture, task = registry.architecture(point.architecture), registry.task(point.task)
        protocol = get_protocol(point.protocol, point.protocol_version)
        if task.version != point.task_version:
            raise UsageError(
                f"it was made with version {point.task_version} of task {task.name}, "
                f"and version {task.version} is installed"
            )
        return cls(
            architecture,
            _config(architecture.name, architecture.config, point.config),
            task,
            _config(task.name, task.config, point.task_config),
            protocol,
            _config(protocol.name, protocol.config, point.protocol_config),
            seed,
        )

    @property
    def id(self) -> str:
        return self.point.id

    @cached_property
    def point(self) -> Point:
        """The trial without its seed: what several seeds have in common."""
        return Point(
            architecture=self.architecture.name,
            config=_text(to_dict(self.config)),
            task=self.task.name,
            task_version=self.task.version,
            task_config=_text(to_dict(self.task_config)),
            protocol=self.protocol.name,
            protocol_version=self.protocol.version,
            protocol_config=_text(to_dict(self.protocol_config)),
        )

    def with_seed(self, seed: int) -> Trial:
        """Another trial of the same point, whose identity is worked out once for all of them."""
        other = replace(self, seed=seed)
        vars(other)["point"] = self.point
        return other

    def describe(self) -> str:
        return f"{self.architecture.name} on {self.task.name}"


@dataclass(frozen=True)
class Point:
    """A place in a grid, by names and JSON alone, so that it can be hashed and sent to another machine."""

    architecture: str
    config: str
    task: str
    task_version: int
    task_config: str
    protocol: str
    protocol_version: int
    protocol_config: str

    @classmethod
    def of(cls, record: Record) -> Point:
        """The point that a record is of, by what it says of itself; its id need not be the one that it claims."""
        return cls(
            architecture=record.architecture["name"],
            config=_text(record.architecture["config"]),
            task=record.task["name"],
            task_version=record.task["version"],
            task_config=_text(record.task["config"]),
            protocol=record.protocol["name"],
            protocol_version=record.protocol["version"],
            protocol_config=_text(record.protocol["config"]),
        )

    @cached_property
    def id(self) -> str:
        content = json.dumps([IDENTITY_RULE, asdict(self)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def _text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _config(owner: str, kind: type, text: str) -> Any:
    try:
        return kind(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise UsageError(f"its options do not fit {owner} as installed here: {error}") from None
