"""The second level of verification: train a submitted point again, on seeds that the submitter did not choose.

The seeds follow from the submitted records and from a salt that the verifier makes up afterwards. The weights that
come out are verified like submitted ones, and their numbers compared with the submitted seeds: once by accuracy and
once by bits, and only in the direction that matters, which is down. One more seed is trained on a config of the task
that the salt draws, the same question with a few tokens less, and with answers that no seed gives: there neither code
that knows the published configs is of use, nor a model that remembers the seed of its facts in place of the facts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from membench.engine.execution import Execution
from membench.errors import MembenchError
from membench.execute.driver import Watcher, execute
from membench.execute.progress import Bar, bar
from membench.interface.options import label_of, to_dict
from membench.interface.registry import Registry, Selection
from membench.plan.request import check_fit
from membench.plan.trial import Point, Trial
from membench.printing import printable
from membench.records.record import Record
from membench.records.store import MAX_BYTES as MAX_RECORD
from membench.records.store import Store
from membench.records.weights import MAX_BYTES as MAX_WEIGHTS
from membench.records.weights import SUFFIX
from membench.temporary import temporary_folder
from membench.verify.confinement import apart, close_others, in_words
from membench.verify.processes import MAX_MESSAGE, say, words
from membench.verify.secret_answers import draw_turns, with_turned_task
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Unwritten, Verdict, server, verify

COMPARED = ("accuracy", "bits")
SUBMITTED, NEW = 5, 3  # seeds that are needed, and that are trained
SLACK, MAX_SLACK = 0.01, 0.25  # of the mean: what seeds may differ by at least, and at most
LEVEL = 0.99  # of the test
NO_SECRETS = "the task has no held-out config, with answers that no seed gives"
UNCONFINED = "a plugin could have left answers for its model where it was trained: this machine has no"
HELD_OUT = (0.8, 0.95)  # share of the tokens that a config which nobody could foresee has


@dataclass(frozen=True)
class HeldOut:
    """The same model on a task config and answers that nobody could foresee, and what it reached there."""

    point: Point
    seed: int
    share: float  # of the bits that the answers to all facts of the submitted config take
    turns: bytes = field(default=b"", repr=False)  # what the answers are turned by
    metrics: Mapping[str, Any] | None = None

    @property
    def trial(self) -> tuple[Point, int]:
        return self.point, self.seed

    def as_json(self) -> dict[str, Any]:
        found = {name: (self.metrics or {}).get(name) for name in COMPARED}
        return {"task_config": json.loads(self.point.task_config), "seed": self.seed, **found}


@dataclass(frozen=True)
class Repeat:
    """A point that is trained again, and what became of it."""

    point: Point
    seeds: tuple[int, ...]  # that are trained
    submitted: tuple[Verdict, ...]
    outcome: str = UNCHECKED
    reason: str = ""
    found: tuple[dict[str, Any], ...] = ()  # metrics of each new seed
    held_out: HeldOut | None = None
    redrawable: bool = False  # a plugin's code could draw all answers again that it was trained on, from their seed
    foreign: bool = False  # its architecture or task is a plugin's
    notes: tuple[str, ...] = ()

    @property
    def repeated(self) -> list[tuple[Point, int]]:
        return [(self.point, seed) for seed in self.seeds]

    @property
    def trials(self) -> list[tuple[Point, int]]:
        """All that is trained."""
        return [*self.repeated, *([self.held_out.trial] if self.held_out else [])]

    @property
    def id(self) -> str:
        return self.point.id

    @property
    def records(self) -> list[Record]:
        return [one.entry.record for one in self.submitted if one.entry]

    def means(self) -> dict[str, dict[str, float]]:
        """Of what is compared: over the submitted seeds, and over the new ones."""
        sides = {"submitted": [one.metrics for one in self.submitted], "found": list(self.found)}
        return {
            side: {name: statistics.fmean(values) for name in COMPARED if (values := _values(metrics, name))}
            for side, metrics in sides.items()
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "architecture": self.point.architecture,
            "task": self.point.task,
            "id": self.id,
            "seeds": [record.seed for record in self.records],
            "new_seeds": list(self.seeds),
            "outcome": self.outcome,
            "reason": self.reason,
            "notes": list(self.notes),
            **self.means(),
            **({"held_out": self.held_out.as_json()} if self.held_out else {}),
        }


def plan_repeats(verdicts: Sequence[Verdict], salt: str, built_ins: Registry) -> list[Repeat]:
    """One for each point of which a record is verified; what failed need not be trained to be known."""
    points: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.outcome == VERIFIED and verdict.entry is not None:
            points.setdefault(verdict.entry.record.id, []).append(verdict)
    return [_planned(group, salt, built_ins) for group in points.values()]


def _planned(group: Sequence[Verdict], salt: str, built_ins: Registry) -> Repeat:
    entries = [verdict.entry for verdict in group if verdict.entry is not None]
    taken = {entry.record.seed for entry in entries}
    *seeds, last = unforeseen_seeds([entry.sha256 for entry in entries], taken, salt)
    point = Point.of(entries[0].record)
    elsewhere = held_out(point, last, built_ins)
    foreign, theirs = point.architecture not in built_ins.architectures, point.task not in built_ins.tasks
    redrawable = foreign and not theirs and elsewhere is None
    one = Repeat(
        point,
        tuple(seeds),
        tuple(group),
        held_out=elsewhere,
        redrawable=redrawable,
        foreign=foreign or theirs,
    )
    if len(taken) < SUBMITTED:
        told = f"{len(taken)} submitted seed{'s' * (len(taken) > 1)}"
        return replace(
            one,
            seeds=(),
            held_out=None,
            reason=f"{told} do not say how much seeds differ; at least {SUBMITTED} are needed",
        )
    return one


def drawn(repeats: Sequence[Repeat], salt: str, count: int) -> list[Repeat]:
    """So many of them, which the salt chooses among those that can be trained; all that cannot be, if none can."""
    able = [one for one in repeats if one.seeds]
    order = sorted(able or repeats, key=lambda one: hashlib.sha256(f"{salt}\n{one.id}".encode()).digest())
    return order[:count] if able else list(repeats)


def unforeseen_seeds(digests: Sequence[str], taken: set[int], salt: str, count: int = NEW + 1) -> tuple[int, ...]:
    """Seeds that follow from all submitted records of a point and the salt, and are none of theirs."""
    found: list[int] = []
    for number in range(count):
        digest = hashlib.sha256("\n".join([salt, str(number), *sorted(digests)]).encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        while seed in taken or seed in found:
            seed += 1
        found.append(seed)
    return tuple(found)


def held_out(point: Point, seed: int, built_ins: Registry) -> HeldOut | None:
    """The point with fewer tokens and as large a part of their contexts, which no model finds harder.

    None where there is no such config: for a plugin's task, which is not known here, or one with other options.
    """
    task, told = built_ins.tasks.get(point.task), json.loads(point.task_config)
    if task is None or not {"N", "T0"} <= told.keys():
        return None
    tokens = math.floor(told["N"] * random.Random(seed).uniform(*HELD_OUT))
    others = {name: value for name, value in told.items() if name not in ("N", "T0")}
    try:
        whole, fewer = task.config(**{**others, "N": told["N"]}), task.config(**{**others, "N": tokens})
        config = task.config(**{**others, "N": tokens, "T0": math.ceil(told["T0"] * fewer.T0 / whole.T0)})
    except ValueError:  # too small a vocabulary for the other options
        return None
    answers = [task.shape(one).answers for one in (whole, config)]
    share = config.T0 * math.log(answers[1]) / (told["T0"] * math.log(answers[0]))
    elsewhere = replace(point, task_config=json.dumps(to_dict(config), sort_keys=True))
    return HeldOut(elsewhere, seed, share, draw_turns(config.T0))


def repeat(
    repeats: Sequence[Repeat], selection: Selection, execution: Execution, timeout: float, show: bool
) -> list[Repeat]:
    """Train all that can be, verify what comes out from its weights, and compare."""
    pending = [one for one in repeats if one.seeds]
    if not pending:
        return list(repeats)
    trained = _train_all(pending, selection, execution, show)
    store = Store(Path("trained-again"))  # nothing is there: a plugin could find a file where it is asked
    paths = {trial: store.place(*trial) for one in pending if one.id not in trained.problems for trial in one.trials}
    turns = {one.held_out.trial: one.held_out.turns for one in pending if one.held_out}
    unwritten = {
        path: Unwritten(*trained.left.get(trial, (b"", b"")), turns.get(trial, b"")) for trial, path in paths.items()
    }
    checked = verify(list(paths.values()), selection, execution.workers, timeout, unwritten=unwritten)
    verdicts = {one.path: one for one in checked}
    by_trial = {trial: verdicts[path] for trial, path in paths.items()}
    return [_judged(one, trained, by_trial) for one in repeats]


_Trial = tuple[Point, int]
_Wanted = Mapping[str, Sequence[_Trial]]  # by the id of the submitted point


@dataclass
class _Trained:
    """What came of training."""

    left: dict[_Trial, tuple[bytes, bytes]] = field(default_factory=dict)  # record and weights
    problems: dict[str, str] = field(default_factory=dict)  # why not everything of a point, by its id, was trained
    lacking: str = ""  # what this machine does not have to confine a plugin


@dataclass(frozen=True)
class _Task:
    """What one process trains."""

    wanted: _Wanted
    selection: Selection
    execution: Execution
    confined: bool
    folder: str
    turns: bytes = field(default=b"", repr=False)  # of the answers, if they are no seed's; only this process knows them


def _train_all(repeats: Sequence[Repeat], selection: Selection, execution: Execution, show: bool) -> _Trained:
    """Built-ins in a process without plugins; plugins in one that is confined."""
    trained = _Trained()
    total = sum(len(one.trials) for one in repeats)
    with bar(f"0/{total} trials", show) as shown, temporary_folder() as folder:
        for foreign in (False, True):
            chosen = selection if foreign else selection.built_ins()
            some = [one for one in repeats if one.foreign is foreign]
            groups = [({one.id: one.repeated for one in some}, b"")] if some else []
            groups += [({one.id: [one.held_out.trial]}, one.held_out.turns) for one in some if one.held_out]
            for wanted, turns in groups:
                if not wanted.keys() & trained.problems.keys():
                    _train_elsewhere(
                        _Task(wanted, chosen, execution, foreign, str(folder), turns), trained, shown, total
                    )
    return trained


def _train_elsewhere(task: _Task, trained: _Trained, shown: Bar, total: int) -> None:
    """In a process of its own, which imports plugins."""
    context = server()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(task, theirs))
    process.start()
    theirs.close()
    done = len(trained.left)
    try:
        while "problems" not in (told := dict(json.loads(ours.recv_bytes(MAX_MESSAGE)))):
            if "lacking" in told:
                trained.lacking = str(told["lacking"])
                continue
            done += bool(told.get("finished"))
            words = printable(told.get("text", shown.words))
            shown.update(min(max(0.0, done / total), 1.0), f"{done}/{total} trials", words[:200])
        problems = {str(name): str(reason) for name, reason in told["problems"].items()}
        for trials in task.wanted.values():
            for trial in trials:
                trained.left[trial] = ours.recv_bytes(MAX_RECORD), ours.recv_bytes(MAX_WEIGHTS)
        trained.problems |= {name: reason for name, reason in problems.items() if name in task.wanted}
    except (EOFError, OSError, ValueError, TypeError, AttributeError, RecursionError):
        trained.problems |= dict.fromkeys(task.wanted, "the process that trained it ended without a word")
    finally:
        process.terminate()
        process.join()
        ours.close()


def _train(task: _Task, parent: Connection) -> None:
    """Entry point. A built-in one may print, and keep what it compiles; what a plugin prints is nobody's."""
    if not task.confined:
        _train_and_tell(task, parent, [])
        return
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    close_others(parent.fileno())
    apart(lambda missing: _train_and_tell(task, parent, missing), task.folder)


def _train_and_tell(task: _Task, parent: Connection, missing: Sequence[str]) -> None:
    say(parent, lacking=in_words(missing))
    with temporary_folder() as folder:
        store = Store(folder)
        say(parent, problems=_train_here(task, store, parent))
        for trials in task.wanted.values():
            for path in (store.place(*trial) for trial in trials):
                for file in (path, path.with_suffix(SUFFIX)):
                    parent.send_bytes(file.read_bytes() if file.is_file() else b"")


def _train_here(task: _Task, store: Store, parent: Connection) -> dict[str, str]:
    """Says for which points, by id, not everything could be trained."""
    registry, problems = Registry(task.selection), {}
    trials: dict[bool, list[Trial]] = {True: [], False: []}  # by whether the architecture is built in
    for id_, pairs in task.wanted.items():
        try:
            some = [Trial.of(point, registry, seed) for point, seed in pairs]
            check_fit(some)
            trials[some[0].architecture.origin.is_built_in] += some
            registry = with_turned_task(registry, some[0].task.name, task.turns) if task.turns else registry
        except (MembenchError, TypeError, ValueError) as error:
            problems[id_] = words(error) if not isinstance(error, MembenchError) else str(error)
    watcher = Watcher(
        progress=lambda fraction, text: say(parent, text=text[:200]),
        finished=lambda trial, record: say(parent, finished=True),
    )
    for built_in, some in trials.items():
        # a kernel of a plugin is given the answers, and may return any weights
        kept = replace(
            task.execution,
            keep_weights=True,
            kernel=task.execution.kernel if built_in else "off",
            executor="inline" if task.turns else task.execution.executor,
        )
        execute(some, store, registry, kept, watcher)
    return problems


def _judged(one: Repeat, trained: _Trained, verdicts: Mapping[_Trial, Verdict]) -> Repeat:
    if not one.seeds:
        return one
    if one.foreign and trained.lacking:
        one = replace(one, notes=(f"{UNCONFINED} {trained.lacking}",))
    if one.id in trained.problems:
        return replace(one, reason=trained.problems[one.id])
    new = [verdicts[one.point, seed] for seed in one.seeds]
    metrics = tuple(verdict.metrics for verdict in new)
    for verdict in (verdicts[trial] for trial in one.trials):
        if verdict.outcome != VERIFIED:
            error = verdict.record.error if verdict.record and verdict.record.error else verdict.reason
            return replace(one, outcome=verdict.outcome, reason=f"trained again: {error}", found=metrics)
    sizes = {verdict.size["parameters"] for verdict in (*one.submitted, *new)}
    if len(sizes) > 1:
        counts = ", ".join(f"{size:,}" for size in sorted(sizes))
        return replace(one, outcome=FAILED, reason=f"its seeds differ in size: {counts} parameters", found=metrics)
    submitted = [verdict.metrics for verdict in one.submitted]
    outcome, reason = consistent(submitted, metrics)
    if one.held_out:
        measured = replace(one.held_out, metrics=verdicts[one.held_out.trial].metrics)
        one = replace(one, held_out=measured)
        if outcome == VERIFIED:
            outcome, reason = consistent_elsewhere(submitted, measured)
    if outcome == VERIFIED and one.redrawable:
        outcome, reason = UNCHECKED, f"new seeds do as well, but a plugin could draw the facts again: {NO_SECRETS}"
    return replace(one, outcome=outcome, reason=reason, found=metrics)


def consistent(submitted: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Whether new seeds are no worse than the submitted ones, by accuracy and by bits."""
    for name in COMPARED:
        values, found = _values(submitted, name), _values(new, name)
        if len(values) != len(submitted) or len(found) != len(new):
            return UNCHECKED, f"not every record has {name}"
        mean, least = statistics.fmean(values), least_expected(values, found)
        if (reached := statistics.fmean(found)) < least:
            return (
                FAILED,
                f"{name} is {reached:.6g} on {len(found)} new seeds, below {least:.6g}, the least that a mean of "
                f"{mean:.6g} over {len(values)} seeds predicts",
            )
    return VERIFIED, ""


def consistent_elsewhere(submitted: Sequence[Mapping[str, Any]], held_out: HeldOut) -> tuple[str, str]:
    """Whether the model is as good on the held-out config: as accurate, with as many of the bits there are to know."""
    for name, share in zip(COMPARED, (1.0, held_out.share), strict=True):
        values, found = _values(submitted, name), _values([held_out.metrics or {}], name)
        if len(values) != len(submitted) or not found:
            return UNCHECKED, f"not every record has {name}"
        (reached,) = found
        if reached < (least := share * least_expected(values, [reached])):
            config = label_of(known := json.loads(held_out.point.task_config), known)
            return (
                FAILED,
                f"{name} is {reached:.6g} with {config}, a config that the salt drew, below {least:.6g}, the least "
                f"that a mean of {statistics.fmean(values):.6g} as submitted predicts",
            )
    return VERIFIED, ""


def least_expected(values: Sequence[float], found: Sequence[float]) -> float:
    """The least mean of new seeds that the submitted ones leave room for: the two-sample t test with pooled variance.

    The slack is at least SLACK of the mean, which seeds may differ by even where all of these agree, and at most
    MAX_SLACK of it, so that no spread makes everything acceptable.
    """
    from scipy.stats import t

    n, m = len(values), len(found)
    freedom = max(n + m - 2, 1)  # of one value each nobody knows the spread
    pooled = sum((len(some) - 1) * statistics.variance(some) for some in (values, found) if len(some) > 1) / freedom
    mean = statistics.fmean(values)
    spread = float(t.ppf(LEVEL, freedom)) * math.sqrt(pooled * (1 / n + 1 / m))
    return mean - min(max(spread, SLACK * abs(mean)), MAX_SLACK * abs(mean))


def _values(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """What each seed reached. Fewer bits than none are none: how sure wrong answers are does not matter."""
    values = (float(value) for one in metrics if (value := one.get(name)) is not None)
    return [max(value, 0.0) if name == "bits" else value for value in values]
