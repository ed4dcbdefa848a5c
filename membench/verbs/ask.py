"""`membench.ask`: what a measured model answers, in the names of its task, beside what is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from membench.errors import UsageError, unknown
from membench.interface.declarations import Names
from membench.interface.facts import Facts, draw_facts
from membench.interface.registry import Registry
from membench.plan.trial import Point, Trial
from membench.records import weights
from membench.records.record import Record
from membench.records.store import Problem, entries_of

SPREAD = 7  # seed of the facts that are shown, so that the same command shows the same


@dataclass(frozen=True)
class Answer:
    """One question, what the model says, and what is right; for a distribution, what is likeliest."""

    question: tuple[str, ...]
    answer: str
    probability: float  # that the model gives to its answer
    right: str  # empty: nothing was to be memorised about it
    is_right: bool


@dataclass(frozen=True)
class Oracle:
    """A model with the weights that were kept, and what its numbers stand for."""

    path: Path
    record: Record
    trial: Trial
    state: bytes

    @classmethod
    def of(cls, path: Path, registry: Registry) -> Oracle:
        """From a record, or the first in a folder whose weights were kept. UsageError when there is none."""
        for found, record in _records(path):
            if record.complete and weights.are_there(record.weights, found):
                trial = Trial.of(Point.of(record), registry, record.seed)
                return cls(found, record, trial, weights.read(record.weights, found))
        raise UsageError(
            f"no record in '{path}' has its weights beside it; keep them with: membench run --keep-weights"
        )

    @cached_property
    def names(self) -> Names:
        task, config = self.trial.task, self.trial.task_config
        if task.names:
            return task.names(config)
        shape = task.shape(config)
        return Names(tuple(map(str, range(shape.vocab))), tuple(map(str, range(shape.answers))))

    @cached_property
    def facts(self) -> Facts:
        return draw_facts(self.trial.task, self.trial.task_config, self.trial.seed)

    def ask(self, words: Sequence[str]) -> Answer:
        """UsageError for a word that is no token, or too few or too many of them."""
        length = self.facts.shape.length
        if len(words) != length:
            raise UsageError(
                f"a question to task '{self.trial.task.name}' has {length} word{'s' if length > 1 else ''}, "
                f"not {len(words)}; one is: {self._example}"
            )
        numbers = {name: number for number, name in enumerate(self.names.tokens)}
        for word in words:
            if word not in numbers:
                raise unknown(f"word of task '{self.trial.task.name}'", word, numbers, f"one is: {self._example}")
        return self._answers(np.array([[numbers[word] for word in words]], dtype=np.int64))[0]

    @property
    def _example(self) -> str:
        return " ".join(f"'{word}'" if " " in word else word for word in self._question(self.facts.inputs[0]))

    def some(self, count: int, *, wrong: bool = False) -> list[Answer]:
        """Questions about facts, drawn at random; with `wrong`, only those that are not answered right."""
        chosen = np.random.default_rng(SPREAD).permutation(len(self.facts))
        chosen = chosen if wrong else chosen[:count]
        answers = self._answers(self.facts.inputs[chosen])
        return [one for one in answers if not (wrong and one.is_right)][:count]

    def _question(self, context: NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(self.names.tokens[token] for token in context)

    def _answers(self, inputs: NDArray[np.int64]) -> list[Answer]:
        likeliest = {
            tuple(context): int(label)
            for context, label in zip(self.facts.inputs.tolist(), _likeliest(self.facts), strict=True)
        }
        probabilities = self._probabilities(inputs)
        answers = []
        for context, row in zip(inputs, probabilities, strict=True):
            chosen, right = int(row.argmax()), likeliest.get(tuple(context.tolist()))
            answers.append(
                Answer(
                    question=self._question(context),
                    answer=self.names.answers[chosen],
                    probability=float(row[chosen]),
                    right="" if right is None else self.names.answers[right],
                    is_right=chosen == right and int((row == row[chosen]).sum()) == 1,
                )
            )
        return answers

    def _probabilities(self, inputs: NDArray[np.int64]) -> NDArray[np.float64]:
        import torch

        from membench.engine.workbench import build_model
        from membench.interface.facts import weight_seed
        from membench.measure.evaluate import check_logits
        from membench.measure.size import float_type

        state = weights.from_bytes(self.state)
        shape = self.facts.shape
        other = weight_seed(self.trial.seed) ^ 1
        module = build_model(self.trial.architecture, shape, self.trial.config, other, float_type(state))
        module.load_state_dict(state)
        module.eval()
        with torch.no_grad():
            logits = check_logits(module(torch.from_numpy(inputs)), len(inputs), shape.answers)
        found: NDArray[np.float64] = torch.softmax(logits.double(), dim=1).numpy()
        return found

    def as_json(self, answers: Sequence[Answer]) -> dict[str, Any]:
        return {
            "record": str(self.path),
            "metrics": dict(self.record.metrics),
            "answers": [{**asdict(one), "question": list(one.question)} for one in answers],
        }


def _records(path: Path) -> Iterator[tuple[Path, Record]]:
    if not path.exists():
        raise UsageError(f"'{path}' does not exist; give a record or a folder of records")
    problems: list[Problem] = []
    for entry in entries_of(path, problems):
        yield Path(entry.source), entry.record


def _likeliest(facts: Facts) -> NDArray[np.int64]:
    return facts.targets if facts.is_association else facts.targets.argmax(axis=1)
