"""Trial: one architecture config, task config and protocol config with one seed; and its identity."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from membench.engine.protocols.protocol import Protocol
from membench.interface.declarations import Architecture, Task

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

    @property
    def id(self) -> str:
        return self.point.id

    @property
    def point(self) -> Point:
        """The trial without its seed: what several seeds have in common."""
        return Point(
            architecture=self.architecture.name,
            config=json.dumps(asdict(self.config), sort_keys=True),
            task=self.task.name,
            task_version=self.task.version,
            task_config=json.dumps(asdict(self.task_config), sort_keys=True),
            protocol=self.protocol.name,
            protocol_version=self.protocol.version,
            protocol_config=json.dumps(asdict(self.protocol_config), sort_keys=True),
        )

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

    @property
    def id(self) -> str:
        content = json.dumps([IDENTITY_RULE, asdict(self)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]
