"""The judge: draws the facts of a record again, asks its model every one of them, and compares what it finds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membench import __version__
from membench.errors import NotApplicable
from membench.interface.bound import Setting
from membench.interface.declarations import Architecture
from membench.interface.facts import Facts, Shape, draw_facts
from membench.interface.options import label
from membench.interface.registry import Registry
from membench.measure.evaluate import InvalidOutput, evaluate
from membench.measure.metrics import REBUILT
from membench.plan.trial import Point, Trial
from membench.records.record import Record
from membench.records.store import other_code
from membench.theory.evaluate import evaluate_bounds
from membench.verify.processes import Case, Failed, Unchecked, words

EXACT = 1e-6  # how far numbers may be apart that were computed from the same logits
# How far logits may be apart, as a part of the largest of them. Where the environment is like the recorded one
# they may still differ: processors of one name do not all sum as many numbers at once.
ALIKE, APART = 1e-6, 1e-5
GRADIENT_ROWS = 8  # questions that show which parameters the logits depend on, as many as in a trial


@dataclass
class Found:
    """What came out so far."""

    metrics: dict[str, Any] = field(default_factory=dict)
    size: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def judge(case: Case, first: Connection, second: Connection) -> dict[str, Any]:
    """The outcome (verified, failed or cannot be checked), the reason for it, and what was found."""
    found = Found()
    try:
        _Examination(case, found).run(first, second)
        outcome, reason = "verified", ""
    except Failed as error:
        outcome, reason = "failed", str(error)
    except Unchecked as error:
        outcome, reason = "cannot be checked", str(error)
    except Exception as error:  # of a task or a bound; what the model does wrong is Failed
        outcome, reason = "cannot be checked", words(error)
    return {"outcome": outcome, "reason": reason, **asdict(found)}


class _Examination:
    """A record with its names looked up."""

    def __init__(self, case: Case, found: Found) -> None:
        self.found, self.exact = found, case.exact
        self.registry, self.record = Registry(case.selection), Record.from_json(case.record)
        self.trial = Trial.of(Point.of(self.record), self.registry, self.record.seed)

    def run(self, first: Connection, second: Connection) -> None:
        check_labels(self.record, self.trial)
        facts = draw_facts(self.trial.task, self.trial.task_config, self.record.seed)
        self._check_facts(facts)
        try:
            self._check_model(facts, first, second)
        except Failed as error:
            raise self._softened(error) from None
        self.found.notes += [f"{name} is not checked" for name in sorted(self.record.metrics.keys() - set(REBUILT))]

    def _check_facts(self, facts: Facts) -> None:
        if facts.sha256() == self.record.task.get("data_sha256"):
            return
        if self.exact and facts.is_association and np.ptp(facts.prior) == 0:  # nothing there has last digits
            raise Failed("the facts of its task and seed are not those that it names by data_sha256")
        self.exact = False
        platform = self.record.environment.get("platform")
        self.found.notes.append(f"facts differ: made on another platform ({platform})")

    def _check_model(self, facts: Facts, first: Connection, second: Connection) -> None:
        found, model = self.found, Correspondent(first, facts)
        found.size = {
            **model.size,
            "identifiable": _identifiable(self.trial.architecture, facts.shape, self.trial.config),
        }
        check_size(self.record, found.size)
        parameters = int(found.size["parameters"])
        found.metrics = _asked(model, facts, parameters)
        doubt = (ALIKE if self.exact else APART) * model.largest
        check_metrics(self.record.metrics, found.metrics, allowances(found.metrics, facts, parameters, doubt, model))
        _check_again(_asked(Correspondent(second, facts), facts, parameters), found.metrics)
        setting = Setting(self.trial.architecture.name, self.trial.config, facts, parameters, model.bits)
        self._check_bounds([asdict(value) for value in evaluate_bounds(self.registry.bounds, setting)])

    def _softened(self, error: Failed) -> Exception:
        """Another version of the plugin, or facts with other last digits, may be why numbers disagree."""
        changed = other_code(self.trial, self.record)
        if changed:
            return Unchecked(f"{error}; {changed}")
        differ = [note for note in self.found.notes if note.startswith("facts differ")]
        return Unchecked(f"{differ[0]}; {error}") if differ else error

    def _check_bounds(self, bounds: Sequence[Mapping[str, Any]]) -> None:
        """As theory has them here; another version of membench may know them better."""
        version = self.record.environment.get("membench")
        if version == __version__:
            self.found.notes += check_bounds(self.record.bounds, {bound["name"]: bound for bound in bounds})
        else:
            self.found.notes.append(f"bounds are not checked: membench {version} evaluated them")


class Correspondent(nn.Module):
    """A candidate as a model: each call is a letter and its answer."""

    def __init__(self, connection: Connection, facts: Facts) -> None:
        super().__init__()
        self.connection, self.answers = connection, facts.answers
        self.margins = np.zeros(0)  # of each answer over the next best
        self.largest = 1.0  # logit, or 1
        connection.send_bytes(facts.inputs[:GRADIENT_ROWS].tobytes())
        told = self._hear()
        self.size, self.bits = dict(told["size"]), int(told["bits"])

    def forward(self, tokens: Tensor) -> Tensor:
        self.connection.send_bytes(tokens.numpy().tobytes())
        self._hear()
        content = bytearray(self.connection.recv_bytes())
        logits = torch.frombuffer(content, dtype=torch.float64).view(len(tokens), self.answers)
        best = logits.topk(2, dim=1).values
        self.margins = np.concatenate([self.margins, (best[:, 0] - best[:, 1]).numpy()])
        self.largest = max(self.largest, float(logits.abs().max()))
        return logits

    def _hear(self) -> dict[str, Any]:
        try:
            message: dict[str, Any] = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise Failed("the process that rebuilt its model ended without a word") from None
        if "error" in message:
            raise Failed(f"its model cannot be rebuilt and asked: {message['error']}")
        return message


def _asked(model: nn.Module, facts: Facts, parameters: int) -> dict[str, Any]:
    try:
        return asdict(evaluate(model, facts, parameters))
    except InvalidOutput as error:
        raise Failed(str(error)) from None


def allowances(
    metrics: Mapping[str, Any], facts: Facts, parameters: int, doubt: float, model: Correspondent
) -> dict[str, float]:
    """How far each metric may be off when every logit may be off by `doubt`."""
    near_ties = float(facts.prior[model.margins <= 2 * doubt].sum())
    accuracy = EXACT + near_ties  # only an answer that is nearly tied can become another
    bits = EXACT * max(1.0, abs(metrics["bits"])) + len(facts) * 2 * doubt / math.log(2)
    return {
        "accuracy": accuracy,
        "kl": EXACT * max(1.0, abs(metrics["kl"])) + 2 * doubt,
        "associations": len(facts) * accuracy / (1 - 1 / facts.answers),
        "bits": bits,
        "bits_per_parameter": bits / max(parameters, 1),
    }


def check_metrics(recorded: Mapping[str, Any], found: Mapping[str, Any], allowed: Mapping[str, float]) -> None:
    for name in REBUILT:
        if not near(recorded.get(name), found[name], allowed[name]):
            raise Failed(
                f"{name} is {_number(found[name])} when the model is rebuilt from its weights, "
                f"but the record says {_number(recorded.get(name))}"
            )


def _check_again(again: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for name in REBUILT:
        if not near(again[name], found[name], EXACT * max(1.0, abs(found[name] or 0.0))):
            raise Failed(
                f"{name} is {_number(found[name])}, but {_number(again[name])} when other random numbers are drawn "
                "before the weights are loaded: the model needs something that its state dict does not hold"
            )


def check_labels(record: Record, trial: Trial) -> None:
    """A table is of labels, and shows them, so that they must say what the configs are."""
    parts = (record.architecture, record.task, record.protocol)
    configs = (trial.config, trial.task_config, trial.protocol_config)
    for kind, part, made in zip(("architecture", "task", "protocol"), parts, configs, strict=True):
        if part.get("label", label(made)) != label(made):
            raise Failed(f"the label of its {kind} is '{part['label']}', but the config is '{label(made)}'")


def check_size(record: Record, size: Mapping[str, Any]) -> None:
    """Every number that the record has; older records have fewer."""
    learned = size["learned_buffers"]
    because = f", with {learned:,} in buffers that training changed" if learned else ""
    for name, found in size.items():
        recorded = record.size.get(name, None if name == "parameters" else found)
        if recorded != found:
            raise Failed(f"the {name} of its size are {found}{because}, but the record says {recorded}")


def check_bounds(recorded: Sequence[Any], known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is recorded is true. Returns notes on what cannot be compared.

    Which bounds are known depends on the plugins that are installed and grows with the theory, so that neither one
    that only the verifier knows nor one that only the submitter knew makes a record wrong.
    """
    unknown_here = []
    for bound in recorded:
        name = str(bound.get("name")) if isinstance(bound, dict) else "without a name"
        if name not in known:
            unknown_here.append(name)
            continue
        value, told = known[name]["value"], bound.get("value")
        same_claim = all(bound.get(key) == known[name][key] for key in ("quantity", "direction", "status"))
        if not same_claim or not near(told, value, EXACT * max(1.0, abs(value or 0.0))):
            raise Failed(f"the bound {name} is not {_number(told)} as the record says, but {_number(value)}")
    there = {bound.get("name") for bound in recorded if isinstance(bound, dict)}
    missing = [name for name, bound in known.items() if bound["status"] == "applies" and name not in there]
    return [
        *(f"the bound {name} is not checked: no plugin here provides it" for name in unknown_here),
        *(f"the bound {name} holds here, and the record does not name it" for name in missing),
    ]


def near(one: Any, other: Any, allowed: float) -> bool:
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
        return one is other
    return abs(one - other) <= allowed


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)


def _identifiable(architecture: Architecture[Any], shape: Shape, config: Any) -> int | None:
    try:
        return architecture.identifiable(shape, config) if architecture.identifiable else None
    except NotApplicable:
        return None
