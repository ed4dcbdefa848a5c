"""A class or function of somebody's, as an architecture: its options are what its signature says."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING
from types import UnionType
from typing import Any

from membench.errors import UsageError
from membench.interface.declarations import Architecture
from membench.interface.facts import Shape
from membench.interface.options import option
from membench.interface.origin import origin_of_object

DIMENSIONS = Shape._fields  # vocab, length, answers: what a task says to whoever asks for it by name
KINDS = (int, float, bool, str)


def architecture_of(target: Callable[..., Any], name: str | None = None) -> Architecture[Any]:
    """`(vocab, length, answers, **options) -> nn.Module` as an architecture.

    Parameters called vocab, length and answers get the numbers of tokens, of positions and of answers; the others are
    the options, with their annotations or else the types of their defaults. What has a default that no option can
    have, such as a list, keeps it.
    """
    name = name or str(getattr(target, "__name__", type(target).__name__))
    parameters = _parameters(target, name)
    wanted = [one for one in parameters if one in DIMENSIONS]
    if not wanted:
        raise UsageError(f"'{name}' takes none of {', '.join(DIMENSIONS)}, so it cannot be built for a task")
    options = {one: _field(name, parameter, kind) for one, (parameter, kind) in parameters.items() if one not in wanted}
    config = dataclasses.make_dataclass(
        f"{name}Config", [found for found in options.values() if found is not None], frozen=True, kw_only=True
    )

    def build(shape: Shape, config: Any) -> Any:
        dimensions = {one: getattr(shape, one) for one in wanted}
        return target(**dimensions, **{one.name: getattr(config, one.name) for one in dataclasses.fields(config)})

    summary = (inspect.getdoc(target) or "").partition("\n")[0] if "__doc__" in vars(target) else ""
    return Architecture(
        name=name,
        summary=summary or f"{name}, from Python",
        reference="",
        config=config,
        build=build,
        origin=origin_of_object(target),
    )


def _parameters(target: Callable[..., Any], name: str) -> dict[str, tuple[inspect.Parameter, Any]]:
    """The named parameters, each with its annotation; those of a class are of its __init__."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError) as error:
        raise UsageError(f"'{name}' cannot be used as an architecture: {error}") from None
    try:
        hints = typing.get_type_hints(vars(target).get("__init__", target) if isinstance(target, type) else target)
    except Exception:  # a name in an annotation that is not there; defaults have types too
        hints = {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one: (p, hints.get(one)) for one, p in signature.parameters.items() if p.kind in named}


def _field(owner: str, parameter: inspect.Parameter, hint: Any) -> tuple[str, Any, Any] | None:
    """A field of the config; None for what stays at its default."""
    default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
    kind = hint if _is_option(hint) else type(default)
    if _is_option(kind):
        return parameter.name, kind, option(default, help=f"{parameter.name} of {owner}")
    if default is not MISSING:
        return None
    raise UsageError(
        f"'{owner}' needs '{parameter.name}', and its type is not known: annotate it as int, float, bool or str, "
        "or give it a default"
    )


def _is_option(hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(one in KINDS for one in typing.get_args(hint))
    return hint in KINDS
