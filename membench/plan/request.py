"""Names and option texts to trials: the grid of a command, with all its mistakes found before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from membench.engine.protocols.protocol import Protocol, get_protocol
from membench.errors import MembenchError, UsageError, unknown
from membench.interface.declarations import Architecture, Task
from membench.interface.options import MAX_GRID, assignments, expand, options_of, validate
from membench.interface.registry import Registry
from membench.plan.budget import Budget, CannotBeBuilt, DoesNotFit
from membench.plan.memory import check_memory
from membench.plan.trial import Trial

ALL = "all"


@dataclass(frozen=True)
class Request:
    """What a person asked for, in their own words."""

    models: Sequence[str]
    tasks: Sequence[str]
    model_options: Sequence[str] = ()
    task_options: Sequence[str] = ()
    protocol: str = "converged"
    protocol_options: Sequence[str] = ()
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    budgets: Sequence[Budget] = ()  # `run`: instead of model options, each architecture's own config for each of them


def plan(registry: Registry, request: Request, left_out: Callable[[str], None] = lambda reason: None) -> list[Trial]:
    """Every trial of the grid; mistakes of all parts are reported together.

    An architecture that does not fit a budget is left out, with a reason, unless none fits; so is one of `all` that
    refuses a task.
    """
    mistakes = _Mistakes()
    architectures = mistakes.collect(lambda: _chosen(request.models, registry.architecture, registry.installed)) or []
    tasks = mistakes.collect(lambda: _chosen(request.tasks, registry.task, registry.tasks)) or []
    protocol = mistakes.collect(lambda: get_protocol(request.protocol))
    models = mistakes.collect(lambda: _grids(architectures, request.model_options, "model", "membench models"))
    data = mistakes.collect(lambda: _grids(tasks, request.task_options, "task", "membench tasks"))
    settings = mistakes.collect(lambda: _protocol_grid(protocol, request.protocol_options) if protocol else [])
    mistakes.settle()
    shapes = len(architectures) * len(request.budgets) if request.budgets else len(models)
    size = shapes * len(data) * len(settings) * len(request.seeds)
    if size > MAX_GRID:
        raise UsageError(f"the grid has {size:,} trials; at most {MAX_GRID:,} are taken at once")
    if request.budgets:
        places = list(_within_budgets(architectures, data, request, left_out))
    else:
        places = [(*model, *facts) for model in models for facts in data]
        if ALL in request.models:
            places = [place for place in places if _is_accepted(*place, left_out)]
    firsts = [
        Trial(architecture, config, task, task_config, protocol, setting, request.seeds[0])
        for architecture, config, task, task_config in places
        for setting in settings
    ]
    check_fit(firsts)
    return [trial.with_seed(seed) for trial in firsts for seed in request.seeds]


def _is_accepted(
    architecture: Architecture[Any], config: Any, task: Task[Any], task_config: Any, left_out: Callable[[str], None]
) -> bool:
    try:
        if architecture.check:
            architecture.check(task.shape(task_config), config)
    except ValueError as error:
        left_out(f"{architecture.name} on {task.name}: {error}")
        return False
    except (Exception, SystemExit):
        return True  # the trial will fail, and its record say why
    return True


def _within_budgets(
    architectures: Sequence[Architecture[Any]],
    data: Sequence[tuple[Task[Any], Any]],
    request: Request,
    left_out: Callable[[str], None],
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Each architecture's config for each budget on each task, once."""
    if request.model_options:
        raise UsageError(f"a budget chooses the model's options; leave out -M {request.model_options[0]}")
    reasons: list[str] = []
    found: dict[str, None] = {}
    for architecture, (task, task_config), budget in itertools.product(architectures, data, request.budgets):
        try:
            config = budget.config(architecture, task.shape(task_config))
        except (DoesNotFit, CannotBeBuilt) as error:
            reasons.append(f"{task.name}: {error}")
            continue
        key = f"{architecture.name} {config} {task.name} {task_config}"  # two budgets may lead to the same model
        if key not in found:
            found[key] = None
            yield architecture, config, task, task_config
    for reason in reasons:
        left_out(reason)
    if not found:
        raise UsageError("no architecture fits the budget: " + "; ".join(dict.fromkeys(reasons)))


def to_tune(registry: Registry, request: Request) -> list[tuple[Architecture[Any], Task[Any], Any, dict[str, Any]]]:
    """Architectures and task configs whose shapes are to be searched, each with the options that stay as they are."""
    if not request.budgets:
        raise UsageError("tune needs a budget: a number of parameters such as 3k, 10000 or 1.5M")
    mistakes = _Mistakes()
    architectures = mistakes.collect(lambda: _chosen(request.models, registry.architecture, registry.installed)) or []
    tasks = mistakes.collect(lambda: _chosen(request.tasks, registry.task, registry.tasks)) or []
    data = mistakes.collect(lambda: _grids(tasks, request.task_options, "task", "membench tasks")) or []
    protocol = mistakes.collect(lambda: get_protocol(request.protocol))
    settings = mistakes.collect(lambda: _protocol_grid(protocol, request.protocol_options) if protocol else []) or []
    fixed = [mistakes.collect(lambda one=one: _fixed(one, architectures, request)) for one in architectures]
    mistakes.settle()
    if len(settings) > 1:
        raise UsageError("tune measures with one protocol; give single values to its options")
    for one, setting in itertools.product(architectures, settings):
        if protocol.check:
            protocol.check(one, setting)
    pairs = zip(architectures, fixed, strict=True)
    return [(one, task, config, own) for (one, own), (task, config) in itertools.product(pairs, data)]


def _fixed(architecture: Architecture[Any], all_of_them: Sequence[Architecture[Any]], request: Request) -> Any:
    """The options of one architecture that were given, each with its single value."""
    known, values = options_of(architecture.config), {}
    for full, text in assignments(request.model_options).items():
        owner, _, name = full.rpartition(".")
        if owner in {one.name for one in all_of_them} - {architecture.name}:
            continue
        name = name if owner == architecture.name else full
        if name not in known:
            raise unknown(f"option of {architecture.name}", name, known, f"see: membench models {architecture.name}")
        try:
            values[name] = known[name].parse(text)
        except ValueError:
            valid = f"a single value is needed, {known[name].valid()}: tune searches the options that are not given"
            raise UsageError(f"{architecture.name}: {name}={text}: {valid}") from None
    return {name: value for name, value in values.items() if value is not None}  # auto follows the other options


class _Mistakes:
    """Collects the sentences of several errors into one."""

    def __init__(self) -> None:
        self.errors: list[MembenchError] = []

    def collect(self, step: Any) -> Any:
        try:
            return step()
        except MembenchError as error:
            self.errors.append(error)
            return None

    def settle(self) -> None:
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise UsageError("\n".join(str(error) for error in self.errors))


def _chosen(names: Sequence[str], get: Any, known: dict[str, Any]) -> list[Any]:
    wanted = [name.strip() for text in names for name in text.split(",") if name.strip()]
    if not wanted:
        raise UsageError("no name given; name one, several separated by commas, or 'all'")
    return list(known.values()) if wanted == [ALL] else [get(name) for name in dict.fromkeys(wanted)]


def _grids(
    items: Sequence[Architecture[Any]] | Sequence[Task[Any]], texts: Sequence[str], kind: str, verb: str
) -> list[tuple[Any, Any]]:
    """Each item with each of its configs. With several items, NAME.OPTION=VALUE sets an option of one of them."""
    given = assignments(texts)
    qualified = {(item.name, name[len(item.name) + 1 :]): name for item in items for name in given
                 if name.startswith(f"{item.name}.")}  # fmt: skip
    common = {name: text for name, text in given.items() if name not in qualified.values()}
    mistakes = _Mistakes()
    found: list[tuple[Any, Any]] = []
    for item in items:
        own = {option: given[full] for (owner, option), full in qualified.items() if owner == item.name}
        hint = f"see its options with: {verb} {item.name}"
        if len(items) > 1:
            hint += f"; to set an option of one {kind} only, write NAME.OPTION=VALUE"
        configs = mistakes.collect(lambda c=item.config, g={**common, **own}, o=item.name, h=hint: expand(c, g, o, h))
        found += [(item, config) for config in configs or ()]
    mistakes.settle()
    return found


def _protocol_grid(protocol: Protocol, texts: Sequence[str]) -> list[Any]:
    return expand(protocol.config, assignments(texts), protocol.name, "see the options with: membench run --help")


def check_fit(trials: Sequence[Trial]) -> None:
    """UsageError for trials that cannot be built: an option out of range, or a config that does not fit the task."""
    mistakes: dict[str, None] = {}
    for point, trial in {trial.point: trial for trial in trials}.items():
        try:
            validate(trial.config, trial.architecture.name)
            validate(trial.task_config, trial.task.name)
            if trial.protocol.check:
                trial.protocol.check(trial.architecture, trial.protocol_config)
            check_memory(trial.task, trial.task_config)
            if trial.architecture.check:
                trial.architecture.check(trial.task.shape(trial.task_config), trial.config)
        except (UsageError, ValueError) as error:
            text = str(error)
            owner = f"{point.architecture} on {point.task}: "
            mistakes[text if isinstance(error, UsageError) else owner + text] = None
        except (Exception, SystemExit):
            pass  # a fault of the plugin and not of who asked: the trial will fail, and its record say why
    if mistakes:
        raise UsageError("\n".join(mistakes))
