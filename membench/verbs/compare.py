"""`membench.compare`: two sets of records, point by point and seed by seed."""

from __future__ import annotations

import os

from membench.errors import UsageError
from membench.regress.compare import Comparisons, Sample, samples
from membench.regress.compare import compare as compare_samples
from membench.regress.watch import parse_watch
from membench.results import Results
from membench.verbs.arguments import Options, say, texts_of
from membench.verbs.load import load

Records = Results | str | os.PathLike[str]
WATCHED = ("accuracy", "kl")


def compare(old: Records, new: Records, *, watch: Options = WATCHED) -> Comparisons:
    """Was capacity lost from `old` to `new`, or is it noise? Each is a folder of records, or results.

    `watch` names metrics, each with the smallest loss that counts: {"accuracy": 0.02}, or ["accuracy", "kl"] for what
    counts by default.
    """
    watched = parse_watch(texts_of(watch))
    before, after = _samples(old), _samples(new)
    if not {one.id for one in before} & {one.id for one in after}:
        raise UsageError(
            f"{_name(old)} and {_name(new)} have no point in common: architectures, options, tasks or versions differ"
        )
    return compare_samples(before, after, lambda sample: watched)


def _samples(given: Records) -> list[Sample]:
    results = given if isinstance(given, Results) else load(given)
    if results.failed:
        say(f"left out {len(results.failed)} failed trials of {_name(given)}")
    finished = samples(results.records)
    if not finished:
        raise UsageError(
            f"{_name(given)} has no finished trials; make some with: membench run --model aot --task bigram"
        )
    return finished


def _name(given: Records) -> str:
    folder = given.folder if isinstance(given, Results) else os.fspath(given)
    return f"'{folder}'" if folder else "one of the results"
