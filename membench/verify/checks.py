"""The comparison: draws the facts of a record again, asks its model every one of them, and measures for itself.

It runs in a process that imports built-ins only. What it knows of a plugin's architecture or task comes as data from
the processes that have the plugin, and everything that is counted is counted here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from membench import __version__
from membench.engine.protocols.protocol import get_protocol
from membench.errors import MembenchError
from membench.interface.bound import Setting
from membench.interface.facts import Facts, Shape, draw_facts
from membench.interface.options import canonical, label_of, shown_options
from membench.interface.origin import BUILT_IN, Code, Origin
from membench.interface.registry import Registry, split_target
from membench.measure.evaluate import InvalidOutput, evaluate
from membench.measure.metrics import LEAST_LOSS, METRICS, REBUILT, RECALLS, recall_name
from membench.measure.quantize import MEASURED, STORED, quantizations_of, quantized, quantized_name, stored_bits
from membench.measure.questions import Question
from membench.measure.size import Fresh, count_size, float_bits, float_type, forms, option_bits, same_bytes, widths_of
from membench.records import weights
from membench.records.record import Record
from membench.records.store import changed_code
from membench.theory.evaluate import evaluate_bounds
from membench.theory.limits import broken_limits
from membench.verify.processes import DECLARED, Case, Failed, Unchecked, hear, hear_bytes, say, words
from membench.verify.secret_answers import turned
from membench.verify.task_process import hear_facts

EXACT = 1e-6  # how far numbers may be apart that were computed from the same logits
SAME = 1e-9  # the same for an accuracy, which is a sum of priors
# How far the logits of one context may be apart, as a part of the largest of them. Where the environment is like the
# recorded one they may still differ: processors of one name do not all sum as many numbers at once.
ALIKE, APART = 1e-6, 1e-5
MAX_OPTION_BITS = 192  # of the options of a plugin's architecture, as much as six parameters
MAX_SLACK = 0.01  # of the prior, or of the log A of each context, whatever the logits are
GRADIENT_ROWS = 8  # questions that show which parameters the logits depend on, as many as in a trial
# What depends on where a model is asked, or that only its own process can say: shown as it is found here.
COSTS = ("active", "state", "flops")
CODE = ("code_bytes",)  # likewise: a comment changes it, and is no reason for a new version of a built-in architecture
ASKED = ("kind", "contexts", "vocab", "answers", "length")  # what a record says of its facts


@dataclass
class Found:
    """What was measured so far."""

    metrics: dict[str, Any] = field(default_factory=dict)
    size: dict[str, Any] = field(default_factory=dict)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(case: Case, task: Connection | None, builder: Connection, models: Sequence[Connection]) -> dict[str, Any]:
    """The outcome (verified, failed or cannot be checked), the reason for it, and what was measured."""
    found = Found()
    try:
        _Comparison(case, found).run(task, builder, models)
        outcome, reason = "verified", ""
    except Failed as error:
        outcome, reason = "failed", str(error)
    except (Unchecked, MembenchError) as error:
        outcome, reason = "cannot be checked", str(error)
    except Exception as error:  # of a task or a bound; what the model does wrong is Failed
        outcome, reason = "cannot be checked", words(error)
    return {"outcome": outcome, "reason": reason, **asdict(found)}


@dataclass(frozen=True)
class Described:
    """An architecture or task as its process describes it."""

    code: Code
    config: dict[str, Any]  # in the one way to write it
    shown: list[str]  # options that its label shows

    @classmethod
    def told(cls, name: str, told: Mapping[str, Any]) -> Described:
        try:
            origin: dict[str, Any] = {key: value and str(value) for key, value in told["origin"].items()}
            config = dict(told["config"])
            # a label may leave out what is as it would be anyway, but no number
            numbers = {name for name, value in config.items() if type(value) in (int, float)}
            shown = [name for name in config if name in numbers or name in set(map(str, told["shown"]))]
            return cls(Code(name, int(told["version"]), Origin(**origin)), config, shown)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Failed(f"the process of '{name}' does not say what it is: {words(error)}") from None


class _Comparison:
    """A record, and what is found of what it says."""

    def __init__(self, case: Case, found: Found) -> None:
        self.found, self.exact, self.content, self.turns = found, case.exact, case.weights, case.turns
        self.code_bytes, self.digests = case.code_bytes, case.digests
        self.registry, self.record = Registry(case.selection), Record.from_json(case.record)

    def run(self, task: Connection | None, builder: Connection, models: Sequence[Connection]) -> None:
        self._check_protocol()
        self.task, facts = self._draw(task)
        check_config("task", self.record.task, self.task)
        states = [self._state(prefix) for prefix in weights.prefixes(self.content)]
        self.request = {"shape": list(facts.shape), "dtype": float_type(states[0])}
        say(builder, **self.request)
        told = hear(builder, "model")
        self.architecture = Described.told(self.record.architecture["name"], told)
        check_config("architecture", self.record.architecture, self.architecture)
        self._check_providers()
        self._check_facts(facts)
        try:
            fresh, own = _fresh(builder, told), 2 * len(states)
            self._check_model(facts, states, told, fresh, models[:own])
            self._check_quantized(facts, states, fresh, models[own:])
        except Failed as error:
            raise self._softened(error) from None
        self._check_code()
        unchecked = self.record.metrics.keys() - self.found.metrics.keys()
        self.found.notes += [f"{name} is not checked" for name in sorted(unchecked)]

    @property
    def _parts(self) -> Iterator[tuple[str, Mapping[str, Any], Code, bool]]:
        """What the record says of its architecture and task, what they are here, and whether they are built in."""
        known = self.registry
        architecture, task = self.architecture.code, self.task.code
        yield "architecture", self.record.architecture, architecture, architecture.name in known.architectures
        yield "task", self.record.task, task, task.name in known.tasks

    def _check_providers(self) -> None:
        installed = {plugin.distribution for plugin in self.registry.plugins} - {BUILT_IN}
        for kind, told, code, built_in in self._parts:
            here = code.origin.distribution
            if not built_in and here not in installed and not (is_file(here) and self.digests):
                raise Failed(f"the process of its {kind} says that it is of {here}, which is not installed here")
            check_provider(kind, told, code, built_in)

    def _check_code(self) -> None:
        """All else is as the record says, but perhaps by chance: it names code that is not here."""
        for _, told, code, built_in in self._parts:
            if not built_in and (why := other_code(told, code, self.digests)):
                raise Unchecked(why)

    def _check_protocol(self) -> None:
        told = self.record.protocol
        protocol = get_protocol(told["name"], told["version"])
        config = _made(protocol.name, protocol.config, told["config"])
        described = Described(
            Code(protocol.name, protocol.version, Origin()), canonical(config, protocol.name), shown_options(config)
        )
        check_config("protocol", told, described)

    def _draw(self, asked: Connection | None) -> tuple[Described, Facts]:
        """The facts: drawn here for a built-in task, else by the process of its plugin."""
        name, told = self.record.task["name"], self.record.task
        if asked is not None:
            heard, facts = hear_facts(asked)
            return Described.told(name, heard), facts
        task = self.registry.task(name)
        if task.version != told["version"]:
            raise Unchecked(
                f"it was made with version {told['version']} of task {name}, and version {task.version} is installed"
            )
        config = _made(name, task.config, told["config"])
        described = Described(Code(name, task.version, task.origin), canonical(config, name), shown_options(config))
        return described, turned(name, draw_facts(task, config, self.record.seed), self.turns)

    def _state(self, prefix: str) -> dict[str, Tensor]:
        try:
            return weights.from_bytes(self.content, prefix)
        except ValueError as error:
            raise Failed(f"its weights are {error}") from None

    def _check_facts(self, facts: Facts) -> None:
        asked = {
            "kind": "association" if facts.is_association else "distribution",
            "contexts": len(facts),
            "vocab": facts.vocab,
            "answers": facts.answers,
            "length": facts.shape.length,
        }
        for name in ASKED:
            if self.record.task.get(name, asked[name]) != asked[name]:
                raise Failed(f"the {name} of its task is {asked[name]}, but the record says {self.record.task[name]}")
        if facts.sha256() == self.record.task.get("data_sha256"):
            return
        if self.exact and facts.is_association and np.ptp(facts.prior) == 0:  # nothing there has last digits
            raise Failed("the facts of its task and seed are not those that it names by data_sha256")
        self.exact = False
        platform = self.record.environment.get("platform")
        self.found.notes.append(f"facts differ: made on another platform ({platform})")

    def _check_model(
        self,
        facts: Facts,
        states: Sequence[Mapping[str, Tensor]],
        told: Mapping[str, Any],
        fresh: Fresh,
        models: Sequence[Connection],
    ) -> None:
        """Two models rebuilt from the weights that hold most facts and, where there are others, two from those."""
        for state in states:
            check_forms(forms(state), fresh.forms)
        found, model = self.found, self._asked(models[0], facts, states[0])
        found.size = self._size(states[0], fresh, facts.shape, told, model)
        self._check_platform(states[0], fresh)
        known = self.architecture.code.name in self.registry.architectures and self.exact
        check_size(self.record, found.size, CODE if known else (*COSTS, *CODE))
        second = self._asked(models[1], facts, states[0])
        found.metrics = self._check_set(facts, model, second, LEAST_LOSS if len(models) > 2 else ())
        if len(models) > 2:
            least, again = (self._asked(model, facts, states[1]) for model in models[2:])
            size = self._size(states[1], fresh, facts.shape, told, least)
            if size["parameters"] != found.size["parameters"]:
                raise Failed("its two sets of weights are of models that differ in size")
            other = self._check_set(facts, least, again, set(REBUILT) - set(LEAST_LOSS))
            found.metrics |= {name: other[name] for name in LEAST_LOSS}
        self._check_bounds(facts, float_bits(states[0]))
        for sentence in broken_limits(found.metrics, found.bounds, found.size["learned_bits"]):
            raise Failed(sentence)
        if told.get("kernel") and not self.architecture.code.origin.is_built_in:
            found.notes.append("its plugin has a kernel, which is given the answers: --retrain trains without it")

    def _check_quantized(
        self, facts: Facts, states: Sequence[Mapping[str, Tensor]], fresh: Fresh, models: Sequence[Connection]
    ) -> None:
        """What is recorded of rounded weights: they are rounded here, and each set is asked once more."""
        waiting = iter(models)
        for name in quantizations_of(self.record.metrics):
            asked = [self._asked(next(waiting), facts, quantized(state, fresh, name)) for state in states]
            found = [_answered(model, facts, 0) for model in asked]
            allowed = [allowances(one, facts, 0, model, self.exact) for one, model in zip(found, asked, strict=True)]
            for metric in MEASURED:
                which = -1 if metric in LEAST_LOSS else 0
                self._check_rounded(quantized_name(metric, name), found[which][metric], allowed[which][metric])
            self._check_rounded(quantized_name(STORED, name), stored_bits(states[0], fresh, name), 0)

    def _check_rounded(self, name: str, found: float | None, allowed: float) -> None:
        self.found.metrics[name] = found
        if not near(self.record.metrics.get(name), found, allowed):
            raise Failed(
                f"{name} is {_number(found)} when its weights are rounded again, "
                f"but the record says {_number(self.record.metrics.get(name))}"
            )

    def _asked(self, connection: Connection, facts: Facts, state: Mapping[str, Tensor]) -> Correspondent:
        """Sends the tensors and nothing else: the header of their file, or their order, could tell what they do not."""
        try:
            say(connection, **self.request)
            connection.send_bytes(weights.to_bytes(dict(sorted(state.items()))))
        except OSError:
            raise Failed("the process of its model ended without a word") from None
        return Correspondent(connection, facts, torch.finfo(getattr(torch, str(self.request["dtype"]))).eps)

    def _size(
        self,
        state: Mapping[str, Tensor],
        fresh: Fresh,
        shape: Shape,
        told: Mapping[str, Any],
        model: Correspondent,
    ) -> dict[str, Any]:
        """Counted from the weights; the architecture says which tables are embeddings and how many are identifiable.

        What a question costs is seen where the model runs, and a plugin's process could say anything of it.
        """
        config = self.architecture.config
        embeddings = tuple(map(str, told.get("embeddings", ())))
        trusted = self.architecture.code.name in self.registry.architectures
        size = count_size(state, fresh, shape, embeddings, widths_of(config), model.questions if trusted else ())
        options = 0 if self.architecture.code.origin.is_built_in else option_bits(config)
        if options > MAX_OPTION_BITS:
            raise Failed(
                f"the options of its architecture can carry {options} bits, and at most {MAX_OPTION_BITS} describe a "
                "model: what it knows belongs in its weights"
            )
        declared = {count: told.get(count) for count in DECLARED}
        return asdict(
            replace(
                size,
                without_gradient=model.without_gradient,
                identifiable=declared["identifiable"] if type(declared["identifiable"]) is int else None,
                active=declared["active"] if trusted and declared["active"] is not None else size.active,
                state=declared["state"] if trusted else None,
                code_bytes=self.code_bytes,
                storage_bits=size.storage_bits + options,
            )
        )

    def _check_platform(self, state: Mapping[str, Tensor], fresh: Fresh) -> None:
        """A buffer that is nearly what is built here may come from another platform; that it does is not known."""
        nearly = [name for name, value in fresh.others.items() if name in state and _only_nearly(state[name], value)]
        if nearly and not self.exact:
            raise Unchecked(
                f"its buffers differ in their last digits from what is built here ({', '.join(nearly[:3])}): "
                "made on another platform, or changed by training"
            )

    def _check_set(
        self, facts: Facts, model: Correspondent, second: Correspondent, left_out: Collection[str]
    ) -> dict[str, Any]:
        """What a set of weights reaches, which the record says but for what the other set is for."""
        parameters = int(self.found.size["parameters"])
        metrics = _answered(model, facts, parameters)
        _check_again(_answered(second, facts, parameters), metrics)
        allowed = allowances(metrics, facts, parameters, model, self.exact)
        check_metrics(self.record.metrics, metrics, allowed, left_out)
        return metrics

    def _softened(self, error: Failed) -> Exception:
        """Another version of the plugin, or facts with other last digits, may be why numbers disagree."""
        pairs = ((self.architecture, self.record.architecture), (self.task, self.record.task))
        changed = next((why for one, part in pairs if (why := changed_code(one.code, part))), "")
        if changed:
            return Unchecked(f"{error}; {changed}")
        differ = [note for note in self.found.notes if note.startswith("facts differ")]
        return Unchecked(f"{differ[0]}; {error}") if differ else error

    def _check_bounds(self, facts: Facts, bits: int) -> None:
        """As theory has them here; another version of membench may know them better."""
        name, config = self.architecture.code.name, self.architecture.config
        known = self.registry.architectures.get(name)
        setting = Setting(
            name, known.config(**config) if known else config, facts, int(self.found.size["parameters"]), bits
        )
        self.found.bounds = [asdict(value) for value in evaluate_bounds(self.registry.bounds, setting)]
        version = self.record.environment.get("membench")
        if version == __version__:
            here = {bound["name"]: bound for bound in self.found.bounds}
            self.found.notes += check_bounds(self.record.bounds, here)
        else:
            self.found.notes.append(f"bounds are not checked: membench {version} evaluated them")


def _made(owner: str, kind: type, values: Any) -> Any:
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise Unchecked(f"its options do not fit {owner} as installed here: {error}") from None


def _fresh(builder: Connection, told: Mapping[str, Any]) -> Fresh:
    try:
        others = weights.from_bytes(bytes(hear_bytes(builder, "model")))
        same = {str(name): str(first) for name, first in dict(told["same"]).items()}
        told_forms = {str(name): str(form) for name, form in dict(told["forms"]).items()}
        return Fresh(frozenset(map(str, told["parameters"])), others, same, int(told["unsaved"]), told_forms)
    except (KeyError, TypeError, ValueError) as error:
        raise Failed(f"the process of its model does not say what it is made of: {words(error)}") from None


def _only_nearly(buffer: Tensor, built: Tensor) -> bool:
    if same_bytes(buffer, built) or buffer.shape != built.shape or not buffer.is_floating_point():
        return False
    return torch.allclose(buffer.double(), built.double(), rtol=1e-5, atol=1e-6)


class Correspondent(nn.Module):
    """A candidate as a model: each call is a letter and its answer."""

    def __init__(self, connection: Connection, facts: Facts, rounding: float = 0.0) -> None:
        """`rounding` is how far one rounding can move a number of the weights' type, as a part of it."""
        super().__init__()
        self.connection, self.answers, self.rounding = connection, facts.answers, rounding
        self.margins = np.zeros(0)  # of the best answer to each context over the next best
        self.largest = np.zeros(0)  # logit of each context
        connection.send_bytes(facts.inputs[:GRADIENT_ROWS].tobytes())
        heard = hear(connection, "model")
        told = heard.get("without_gradient")
        self.without_gradient = told if type(told) is int else -1
        self._questions = heard.get("questions")

    @property
    def questions(self) -> list[Question]:
        """What the first questions cost, as the process of a built-in architecture says."""
        return [Question(**one) for one in self._questions or ()]

    def forward(self, tokens: Tensor) -> Tensor:
        try:
            self.connection.send_bytes(tokens.numpy().tobytes())
        except OSError:
            raise Failed("the process of its model ended without a word") from None
        hear(self.connection, "model")
        content = hear_bytes(self.connection, "model")
        if len(content) != 8 * len(tokens) * self.answers:
            raise Failed(f"its model sent {len(content)} bytes for {len(tokens)} contexts")
        logits = torch.frombuffer(content, dtype=torch.float64).view(len(tokens), self.answers)
        best = logits.topk(min(2, self.answers), dim=1).values
        self.margins = np.concatenate([self.margins, (best[:, 0] - best[:, -1]).numpy()])
        self.largest = np.concatenate([self.largest, logits.abs().amax(dim=1).numpy()])
        return logits


def _answered(model: nn.Module, facts: Facts, parameters: int) -> dict[str, Any]:
    try:
        metrics = evaluate(model, facts, parameters).as_record()
    except InvalidOutput as error:
        raise Failed(str(error)) from None
    if not all(math.isfinite(value) for value in metrics.values() if value is not None):
        raise Failed("its logits are so large that its metrics are not finite")
    return metrics


def allowances(
    metrics: Mapping[str, Any], facts: Facts, parameters: int, model: Correspondent, exact: bool
) -> dict[str, float]:
    """How far each metric of a record may be off.

    Each context's logits may differ by a part of its own largest one, and what that can change is capped: a huge
    logit, or weights that answer nothing, must not make every number acceptable.
    """
    doubt = max(ALIKE if exact else APART, model.rounding) * np.maximum(1.0, model.largest)
    losses: NDArray[np.float64] = np.minimum(2 * doubt, MAX_SLACK * math.log(max(facts.answers, 2)))
    near_ties = 0.0 if exact else float(facts.prior[model.margins <= 2 * doubt].sum())
    accuracy = SAME + min(near_ties, MAX_SLACK)  # only an answer that is nearly tied can become another
    bits = EXACT * max(1.0, abs(metrics["bits"])) + float(losses.sum()) / math.log(2)
    return {
        "accuracy": accuracy,
        "kl": EXACT * max(1.0, abs(metrics["kl"])) + float(facts.prior @ losses),
        "associations": EXACT + len(facts) * accuracy / (1 - 1 / facts.answers),
        "bits": bits,
        "bits_per_parameter": bits / max(parameters, 1),
        # log2 of the odds bounds how fast the bits of an accuracy change with it
        "bits_of_accuracy": EXACT + len(facts) * accuracy * 2 * math.log2(len(facts) * facts.answers + 1),
        "bits_beyond_last_token": bits,
        # where the first k end, answers may be nearly tied too
        **{recall_name(k): SAME + (0.0 if exact else MAX_SLACK) for k in RECALLS},
    }


def check_metrics(
    recorded: Mapping[str, Any], found: Mapping[str, Any], allowed: Mapping[str, float], left_out: Collection[str] = ()
) -> None:
    for name in REBUILT:
        if name in left_out or (METRICS[name].later and name not in recorded):
            continue
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


def check_config(kind: str, told: Mapping[str, Any], described: Described) -> None:
    """A config has one way to be written, by which it is known; and its label, by which tables are made, says it."""
    written, config = _text(told["config"]), _text(described.config)
    if written != config:
        raise Failed(f"the config of its {kind} is written {written[:300]}, and the one way to write it is {config}")
    made = label_of(described.config, described.shown)
    if told.get("label", made) != made:
        raise Failed(f"the label of its {kind} is '{told['label']}', but the config is '{made}'")


def is_file(distribution: object) -> bool:
    return split_target(str(distribution))[0].endswith(".py")


def check_provider(kind: str, told: Mapping[str, Any], code: Code, built_in: bool) -> None:
    """Files lie at another path for everybody."""
    said, here = told.get("distribution"), code.origin.distribution
    if said is None and built_in:  # of an older membench
        return
    if said != here and not (is_file(said) and is_file(here)):
        raise Failed(f"its {kind} is provided by {here} here, but the record says {said or 'nothing of that'}")


def other_code(told: Mapping[str, Any], code: Code, digests: Collection[str]) -> str:
    """Why a plugin's code is not the code that a record names; empty if it may be. `digests` are of the files here."""
    origin = code.origin
    if told.get("version") != code.version or is_file(origin.distribution):
        if told.get("code_sha256") in digests and told.get("version") == code.version:
            return ""
        return changed_code(code, told) or f"the code of {code.name} is not the code that was measured"
    for name, here in (
        ("distribution_version", origin.version),
        ("commit", origin.commit),
        ("code_sha256", origin.code_sha256),
    ):
        if here and told.get(name) and told[name] != here:
            return f"{name} of {code.name} is {here}, and was {told[name]}"
    return ""


def _text(config: Any) -> str:
    return json.dumps(config, sort_keys=True)


def check_forms(given: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """The tensors are those of a model that learned nothing, so that neither names nor shapes can tell a fact.

    It is not for the model's process to say so: that has the weights in its hands.
    """
    for name in sorted(wanted.keys() | given.keys()):
        if name not in given:
            raise Failed(f"its weights do not fit the model: '{name}' is missing")
        if name not in wanted:
            raise Failed(f"its weights do not fit the model: '{name}' is not part of it")
        if given[name] != wanted[name]:
            raise Failed(
                f"its weights do not fit the model: '{name}' is {given[name]}, and the model has {wanted[name]}"
            )


def check_size(record: Record, size: Mapping[str, Any], left_out: Collection[str] = ()) -> None:
    """Every number that the record has; older records have fewer."""
    learned = size["learned_buffers"]
    because = f", with {learned:,} in buffers that are not as they were built" if learned else ""
    for name, found in size.items():
        if name in left_out:
            continue
        recorded = record.size.get(name, None if name == "parameters" else found)
        if recorded != found:
            raise Failed(f"the {name} of its size are {found}{because}, but the record says {recorded}")


def check_bounds(recorded: Iterable[Any], known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is recorded is true. Returns notes on what cannot be compared.

    Which bounds are known grows with the theory, and those of plugins are not evaluated here, so that neither one
    that only the verifier knows nor one that only the submitter knew makes a record wrong.
    """
    recorded = [bound for bound in recorded if isinstance(bound, dict)]
    unknown_here = []
    for bound in recorded:
        name = str(bound.get("name"))
        if name not in known:
            unknown_here.append(name)
            continue
        value, told = known[name]["value"], bound.get("value")
        same_claim = all(bound.get(key) == known[name][key] for key in ("quantity", "direction", "status"))
        if not same_claim or not near(told, value, EXACT * max(1.0, abs(value or 0.0))):
            raise Failed(f"the bound {name} is not {_number(told)} as the record says, but {_number(value)}")
    there = {bound.get("name") for bound in recorded}
    missing = [
        name
        for name, bound in known.items()
        if bound["status"] == "applies" and bound["direction"] != "reported" and name not in there
    ]
    return [
        *(f"the bound {name} is not checked: it is not one of membench's" for name in unknown_here),
        *(f"the bound {name} holds here, and the record does not name it" for name in missing),
    ]


def near(one: Any, other: Any, allowed: float) -> bool:
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
        return one is other
    return abs(one - other) <= allowed


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)
