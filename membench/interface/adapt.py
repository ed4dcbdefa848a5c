"""A class or function of somebody's, as an architecture: its options are what its signature says."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

from membench.interface.declarations import Architecture
from membench.interface.facts import Shape
from membench.interface.options import option

DIMENSIONS = ("vocab", "length", "answers")


def architecture_of(target: Callable[..., Any], name: str | None = None) -> Architecture[Any]:
    """`(vocab, length, answers, **options) -> nn.Module` as an architecture; every option has an annotated default."""
    name = name or target.__name__
    hints = typing.get_type_hints(vars(target)["__init__"] if isinstance(target, type) else target)
    parameters = [one for one in inspect.signature(target).parameters.values() if one.name not in DIMENSIONS]
    fields = [(one.name, hints[one.name], option(one.default, help=one.name)) for one in parameters]
    config = dataclasses.make_dataclass(f"{name}Config", fields, frozen=True, kw_only=True)

    def build(shape: Shape, config: Any) -> Any:
        answers = getattr(shape, "answers", shape.vocab)
        return target(vocab=shape.vocab, length=shape.length, answers=answers, **dataclasses.asdict(config))

    return Architecture(name=name, summary=f"{name}, from Python", reference="", config=config, build=build)
