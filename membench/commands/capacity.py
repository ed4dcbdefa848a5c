"""`membench capacity`: the number of facts that a model memorises, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from membench.capacity.measurement import Measurement, summarise
from membench.capacity.search import Search
from membench.capacity.threshold import Peak, Threshold, mean_interval, peak, threshold
from membench.commands.common import (
    console,
    json_option,
    listing,
    load_registry,
    plugin_options,
    print_json,
)
from membench.commands.execution import carry_out, execution_options, out_option, request_options
from membench.commands.run import fail_if_any
from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.interface.facts import Shape, draw_facts
from membench.interface.options import assignments, label, options_of
from membench.interface.registry import Registry
from membench.plan.request import Request, check_fit, plan
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store

VARIED = ("T0", "N")
FIRST_N = 8  # a small vocabulary, to learn the number of parameters from


def parse_levels(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
    """`1,0.99` as numbers above 0 and up to 1, largest first."""
    try:
        levels = sorted({float(part) for part in text.split(",")}, reverse=True)
    except ValueError:
        levels = []
    if not levels or not all(0 < level <= 1 for level in levels):
        raise UsageError(f"--at {text}: accuracies above 0 and up to 1 are needed, such as 1,0.99")
    return tuple(levels)


@click.command()
@request_options
@click.option("--vary", type=click.Choice(VARIED), default="T0", show_default=True,
              help="T0: more facts of the same task; N: larger vocabularies, with all their contexts.")  # fmt: skip
@click.option("--at", "levels", default="1,0.99", show_default=True, callback=parse_levels,
              help="Accuracies that count as memorised.")  # fmt: skip
@click.option("--resolution", default=0.1, show_default=True, type=click.FloatRange(0.001, 1),
              help="How far apart the values at a threshold may be, as a part of them.")  # fmt: skip
@click.option("--largest", type=click.IntRange(min=2), help="Try nothing beyond this value of what is varied.")
@execution_options
@out_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw accuracy and bits over the load.")
@json_option
@plugin_options
def capacity(
    request: Request,
    vary: str,
    levels: tuple[float, ...],
    resolution: float,
    largest: int | None,
    execution: Execution,
    out: Path,
    plot: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Find how many facts one model memorises.

    Trains several seeds with more and more facts, brackets the number at which they no longer
    memorise all (or 99 %) of them, refines around it, and fits the threshold to all trials. Every
    trial leaves a record; the same command again continues.

    \b
    membench capacity --model aot --task bigram -T N=50 -M d=10 -M H=4
    membench capacity --model linear-memory --task ngram -T S=1 --vary N -M d=16
    """
    registry = load_registry(files, block)
    _check_plot(plot)
    subject = Subject.of(plan(registry, request), vary, request.task_options)
    store = Store(out)
    store.check()
    search = subject.search(levels, resolution, largest)
    done, ran = _measure(registry, subject, search, store, execution)
    found = Found.of(subject, search, done)
    if plot:
        from membench.capacity.plot import draw_capacity

        written = draw_capacity(done, found.thresholds, found.peak, found.title, plot)
        click.echo(f"wrote {written}", err=True)
    if as_json:
        print_json({**found.as_json(), "records": str(store.root), "ran": ran, "found": len(done) - ran})
        return
    _show(found)
    console().print(f"{ran} new, {len(done) - ran} found as records in {escape(str(store.root))}", soft_wrap=True)


def _check_plot(path: Path | None) -> None:
    """Before hours of training rather than after."""
    if path is None:
        return
    from membench.analysis.look import FORMATS

    if path.suffix not in FORMATS:
        raise UsageError(f"cannot draw to '{path}': a file that ends in {', '.join(FORMATS)} is needed")
    if not path.parent.is_dir():
        raise UsageError(f"cannot draw to '{path}': '{path.parent}' is not a folder")


@dataclass(frozen=True)
class Subject:
    """One model and task, of which one task option is varied."""

    trials: Sequence[Trial]  # the point as it was asked for, one trial for each seed
    vary: str

    @classmethod
    def of(cls, trials: Sequence[Trial], vary: str, task_options: Sequence[str]) -> Subject:
        """UsageError for a grid, or for a task on which nothing can be varied or wholly right."""
        points = len({trial.point for trial in trials})
        if points > 1:
            raise UsageError(f"capacity is of one point, but the grid has {points}; give one model and single values")
        task = trials[0].task
        known = options_of(task.config)
        for name in ("T0", vary):
            if name not in known:
                raise UsageError(f"task '{task.name}' has no option {name}, so that its capacity cannot be found")
        if vary == "N" and not known["T0"].automatic:
            raise UsageError(
                f"--vary N needs a task that asks for all contexts with T0=auto, and '{task.name}' does not"
            )
        for name in {"T0", vary} & assignments(task_options).keys():
            raise UsageError(f"-T {name}: capacity itself chooses {name}; leave it out, or vary another with --vary")
        subject = cls(trials, vary)
        if not draw_facts(task, subject.config(subject.first), 0).is_association:
            raise UsageError(f"task '{task.name}' asks for distributions; capacity needs facts with one answer each")
        return subject

    @property
    def base(self) -> Trial:
        return self.trials[0]

    @property
    def first(self) -> int:
        return min(self.shape.vocab, self.base.task_config.T0) if self.vary == "T0" else FIRST_N

    @property
    def shape(self) -> Shape:
        return self.base.task.shape(self.base.task_config)

    def config(self, value: int) -> Any:
        """The task config with another value. ValueError if the task has none."""
        changed: dict[str, Any] = {"T0": value} if self.vary == "T0" else {"N": value, "T0": None}
        if self.vary == "N" and hasattr(self.base.task_config, "A") and self.shape.answers == self.shape.vocab:
            changed["A"] = None  # answers that are the tokens stay the tokens
        return replace(self.base.task_config, **changed)

    def at(self, value: int) -> list[Trial]:
        return [replace(trial, task_config=self.config(value)) for trial in self.trials]

    def search(self, levels: tuple[float, ...], resolution: float, largest: int | None) -> Search:
        N, S, _ = self.shape
        limit = N**S if self.vary == "T0" else self._largest_with_all_contexts(S)
        limit = min(limit, largest or limit)
        growth, smallest = (1, 1) if self.vary == "T0" else (S, 2)
        return Search(levels, self.first, smallest, limit, growth, resolution)

    def _largest_with_all_contexts(self, S: int) -> int:
        """The largest N for which the task, left to itself, still asks for all N^S contexts."""
        low, high = 2, 1 << 20
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**S == self.config(middle).T0 else (low, middle - 1)
        return low


def _measure(
    registry: Registry, subject: Subject, search: Search, store: Store, execution: Execution
) -> tuple[list[Measurement], int]:
    """Round after round until the search has ended; and how many trials were run for it."""
    err = Console(stderr=True, highlight=False)
    done: list[Measurement] = []
    ran = 0
    while values := search.next_values(done):
        trials = [trial for value in values for trial in subject.at(value)]
        check_fit(trials)
        pending = [trial for trial in trials if store.find(trial) is None]
        if pending and err.is_terminal:
            err.print(f"{subject.vary} = {', '.join(map(str, values))}", style="dim")
        records = carry_out(trials, store, registry, execution, pending)
        fail_if_any(records)
        ran += len(pending)
        done += [_measurement(record, trial, subject.vary) for record, trial in zip(records, trials, strict=True)]
    return done, ran


def _measurement(record: Record, trial: Trial, vary: str) -> Measurement:
    config, answers = trial.task_config, trial.task.shape(trial.task_config).answers
    parameters, bits = record.size["parameters"], record.metrics["bits_per_parameter"]
    accuracy = record.metrics["accuracy"]
    return Measurement(
        value=getattr(config, vary),
        seed=trial.seed,
        facts=config.T0,
        load=config.T0 * math.log2(answers) / parameters if parameters else math.nan,
        accuracy=math.nan if accuracy is None else accuracy,
        bits=math.nan if bits is None else bits,
    )


@dataclass(frozen=True)
class Found:
    """Everything that is shown."""

    subject: Subject
    levels: tuple[float, ...]
    done: Sequence[Measurement]
    thresholds: Sequence[Threshold]
    peak: Peak | None

    @classmethod
    def of(cls, subject: Subject, search: Search, done: Sequence[Measurement]) -> Found:
        thresholds = [threshold(done, search.levels, level) for level in search.levels]
        return cls(subject, search.levels, done, thresholds, peak(done))

    @property
    def title(self) -> str:
        trial = self.subject.base
        varied = {"T0", self.subject.vary}
        words = label(trial.task_config).split()
        fixed = " ".join(word for word in words if word.partition("=")[0] not in varied)
        model = f"{trial.architecture.name} ({label(trial.config)})"
        return f"{model} on {trial.task.name}{f' ({fixed})' if fixed else ''}, protocol {trial.protocol.name}"

    def as_json(self) -> dict[str, Any]:
        trial = self.subject.base
        return {
            "model": trial.architecture.name,
            "config": asdict(trial.config),
            "task": trial.task.name,
            "task_config": {k: v for k, v in asdict(trial.task_config).items() if k not in ("T0", self.subject.vary)},
            "protocol": trial.protocol.name,
            "protocol_config": asdict(trial.protocol_config),
            "vary": self.subject.vary,
            "seeds": [one.seed for one in self.subject.trials],
            "thresholds": [_plain(asdict(one)) for one in self.thresholds],
            "peak": _plain(asdict(self.peak)) if self.peak else None,
            "values": [self._row(one) for one in summarise(self.done, self.levels)],
        }

    def _row(self, row: Any) -> dict[str, Any]:
        own = [one for one in self.done if one.value == row.value]
        low, high = mean_interval([one.accuracy for one in own])
        bits_low, bits_high = mean_interval([one.bits for one in own])
        ends = {"low": low, "high": high, "bits_low": bits_low, "bits_high": bits_high}
        return _plain({**asdict(row), **ends, "accuracies": [one.accuracy for one in own]})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NaN as null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _show(found: Found) -> None:
    out = console()
    reached = [_level_words(level) for level in found.levels]
    vary = found.subject.vary
    headers = ["facts", "load", "accuracy", *reached, "bits/parameter"]
    table = listing(escape(found.title), *([vary] if vary != "T0" else []), *headers)
    for row in summarise(found.done, found.levels):
        seeds = [f"{round(part * row.seeds)} of {row.seeds}" for part in row.reached]
        numbers = [str(row.facts), f"{row.load:.3g}", f"{row.accuracy:.4f}", *seeds, f"{row.bits:.3f}"]
        table.add_row(*([str(row.value)] if vary != "T0" else []), *numbers)
    out.print(table)
    for one in found.thresholds:
        out.print(_threshold_words(one), soft_wrap=True)
    if found.peak:
        out.print(_peak_words(found.peak), soft_wrap=True)


def _level_words(level: float) -> str:
    return "all right" if level == 1 else f"{100 * level:g} % right"


def _threshold_words(one: Threshold) -> str:
    """One sentence."""
    words = _level_words(one.level)
    if one.status == "at least":
        return f"{words}: at least {one.facts:.0f} facts (load {one.load:.3g}); nothing larger was to be tried"
    if one.status == "below":
        return f"{words}: not even {one.facts:.0f} fact{'' if one.facts == 1 else 's'}"
    interval = f"(95 % {one.low:.4g} to {one.high:.4g})"
    return f"{words}: {one.facts:.4g} facts {interval}, load {one.load:.3g} ({one.load_low:.3g} to {one.load_high:.3g})"


def _peak_words(one: Peak) -> str:
    interval = f" (95 % {one.low:.3f} to {one.high:.3f})" if math.isfinite(one.low) else ""
    return f"peak: {one.bits:.3f} bits per parameter{interval} with {one.facts} facts (load {one.load:.3g})"
