"""How often `membench regress` catches a known loss, and how often it cries wolf: python benchmarks/regression.py

Training is done once, for many seeds of the suite `smoke`; then the test itself is repeated on
seeds drawn from that pool. The pool is kept in a file, so that a second run only repeats the tests.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from membench.engine.execution import Execution
from membench.execute.job import Job
from membench.execute.worker import run_job
from membench.interface.registry import Registry, Selection
from membench.plan.trial import Point
from membench.records.files import write_atomically
from membench.records.record import Record
from membench.regress.compare import LOST, Comparisons, Sample, Watch, compare, samples
from membench.regress.exact_tests import LEVEL
from membench.regress.suite import Plan, load_suite, plan_suite

# An architecture as a third party would bring it: the attention-only transformer under another name, and ways to
# spoil it that leave its name, its options and so the identity of its trials as they are.
PLUGIN = """
import dataclasses
import membench_aot
from membench.api import Architecture, hookimpl

LOSS = {loss!r}


def build(shape, config):
    import torch
    from membench_aot.model import AttentionOnly, Heads

    class FrozenHead(Heads):
        def _first_is_fixed(self, weight):
            return torch.cat([weight[:1].detach(), weight[1:]])

        def _pairs(self):
            query, key = self._first_is_fixed(self.query), self._first_is_fixed(self.key)
            pair = key.mT @ (query * self.factor)
            return pair.transpose(0, 1).flatten(0, 1)

        def _written(self):
            output, value = self._first_is_fixed(self.output), self._first_is_fixed(self.value)
            return (output @ value).permute(1, 2, 0)

    if LOSS == "fewer heads":
        config = dataclasses.replace(config, H=config.H - 1)
    model = AttentionOnly(shape, config)
    if LOSS == "frozen head":
        model.layers[0].__class__ = FrozenHead
    if LOSS == "worse initialisation":
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 0.3
    return model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(membench_aot.AttentionOnlyConfig):
    d: int = membench_aot.option(6, help="d", minimum=1)
    H: int = membench_aot.option(3, help="H", minimum=0)


@hookimpl
def membench_architectures():
    return [Architecture(name="mine", summary="aot", reference="none", config=Config, build=build)]
"""
LOSSES = ("fewer heads", "frozen head", "worse initialisation")
UNCHANGED, OTHER_DIGITS = "unchanged", "unchanged, other arithmetic"
SEEDS = 12  # of the suite
GROUP = 20  # seeds trained together; the suite takes fewer, which changes last digits and nothing else
Pool = dict[str, list[Record]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, default=Path("regression-pool.json"), help="where trained seeds are kept")
    parser.add_argument("--seeds", type=int, default=240, help="seeds to train of each variant")
    parser.add_argument("--repetitions", type=int, default=1000, help="tests of unchanged code with fresh seeds")
    chosen = parser.parse_args()
    pool = Trainer(chosen.pool, chosen.seeds).pool()
    print(f"suite smoke, {SEEDS} seeds, p < {LEVEL:g}; {chosen.seeds} seeds trained of each variant\n")
    print(detections(pool, chosen.seeds))
    print(false_alarms(pool, chosen.seeds, chosen.repetitions))


@dataclasses.dataclass
class Trainer:
    """Trains what the pool does not have yet, and saves it after each point of the suite."""

    path: Path
    seeds: int

    def pool(self) -> Pool:
        found: Pool = {}
        if self.path.exists():
            stored = json.loads(self.path.read_text("utf-8"))
            found = {name: [Record.from_json(text) for text in texts] for name, texts in stored.items()}
        with tempfile.TemporaryDirectory() as folder:
            for variant in (UNCHANGED, OTHER_DIGITS, *LOSSES):
                self._complete(found, variant, _selection(Path(folder), variant))
        return found

    def _complete(self, found: Pool, variant: str, selection: Selection) -> None:
        records = found.setdefault(variant, [])
        done = {(record.id, record.seed) for record in records}
        plan = _plan(selection, variant, range(self.seeds))
        for point in dict.fromkeys(trial.point for trial in plan.trials):
            missing = [seed for seed in range(self.seeds) if (point.id, seed) not in done]
            for start in range(0, len(missing), GROUP):
                records += _trained(point, missing[start : start + GROUP], selection, variant)
            if missing:
                self._save(found)

    def _save(self, found: Pool) -> None:
        text = json.dumps({name: [one.to_json() for one in each] for name, each in found.items()})
        write_atomically(self.path, text)


def _trained(point: Point, seeds: Sequence[int], selection: Selection, variant: str) -> list[Record]:
    clock = time.process_time()
    kernel = "off" if variant == OTHER_DIGITS else "auto"
    job = Job(point, tuple(seeds), selection, Execution(kernel=kernel))
    group = [result.record for result in run_job(job, Registry(selection))]
    failed = [record.error for record in group if not record.complete]
    if failed:
        raise SystemExit(f"{variant}: {point.architecture}: {failed[0]}")
    words = f"{variant}: {point.architecture} on {point.task}, seeds {seeds[0]} to {seeds[-1]}"
    print(f"{words}, {time.process_time() - clock:.1f} CPU s", file=sys.stderr, flush=True)
    return [dataclasses.replace(record, bounds=[], trace={}, size={}) for record in group]


def _plan(selection: Selection, variant: str, seeds: Sequence[int]) -> Plan:
    """All architectures when nothing is spoilt; those with a kernel when digits are; else the spoilt one."""
    models = {UNCHANGED: (), OTHER_DIGITS: ("aot", "mlp-transformer")}.get(variant, ("mine",))
    return plan_suite(Registry(selection), load_suite("smoke"), models, seeds)


def _drawn(records: Iterable[Record], seeds: Iterable[int]) -> list[Sample]:
    wanted = set(seeds)
    return samples(record for record in records if record.seed in wanted)


def _test(old: list[Sample], new: list[Sample]) -> Comparisons:
    return compare(old, new, lambda sample: _watch()[sample.id])


@functools.cache
def _watch() -> Mapping[str, Watch]:
    with tempfile.TemporaryDirectory() as folder:
        return _plan(_selection(Path(folder), UNCHANGED), UNCHANGED, range(1)).watch


def _selection(folder: Path, variant: str) -> Selection:
    file = folder / f"{variant.replace(' ', '_').replace(',', '')}.py"
    file.write_text(PLUGIN.format(loss=variant), encoding="utf-8")
    return Selection(files=(str(file),))


def detections(pool: Pool, seeds: int) -> str:
    """Each draw has seeds of its own, so the repetitions are independent."""
    lines = ["| loss | accuracy from | to | KL from | to | caught, same seeds | caught, fresh seeds |",
             "|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    blocks = [range(start, start + SEEDS) for start in range(0, seeds - SEEDS + 1, SEEDS)]
    for loss in LOSSES:
        paired = [_caught(pool, loss, block, block) for block in blocks]
        fresh = [
            _caught(pool, loss, block, other) for block, other in zip(blocks, blocks[1:] + blocks[:1], strict=True)
        ]
        numbers = " | ".join(_means(pool, loss))
        lines.append(f"| {loss} | {numbers} | {sum(paired)} of {len(paired)} | {sum(fresh)} of {len(fresh)} |")
    return "\n".join(lines) + "\n"


def _caught(pool: Pool, loss: str, before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether the loss of one architecture is found in a suite of seven, of which six are unchanged."""
    spoilt = _drawn(pool[loss], after)
    names = {one.id for one in spoilt}
    rest = [one for one in _drawn(pool[UNCHANGED], after) if one.id not in names]
    found = _test(_drawn(pool[UNCHANGED], before), spoilt + rest)
    return any(row.architecture == "mine" for row in found.of(LOST))


def _means(pool: Pool, loss: str) -> list[str]:
    cells = []
    for task, metric in (("bigram", "accuracy"), ("low-entropy", "kl")):
        for variant in (UNCHANGED, loss):
            values = [one.metrics[metric] or 0.0 for one in pool[variant]
                      if one.architecture["name"] == "mine" and one.task["name"] == task]  # fmt: skip
            cells.append(f"{sum(values) / len(values):.3f}")
    return cells


def false_alarms(pool: Pool, seeds: int, repetitions: int) -> str:
    """Draws of different repetitions share seeds; the two sides of one never do where they are called fresh."""
    generator = random.Random(0)

    def fresh() -> Comparisons:
        both = generator.sample(range(seeds), 2 * SEEDS)
        return _test(_drawn(pool[UNCHANGED], both[:SEEDS]), _drawn(pool[UNCHANGED], both[SEEDS:]))

    def other_digits() -> Comparisons:
        drawn = generator.sample(range(seeds), SEEDS)
        new = _drawn(pool[OTHER_DIGITS], drawn)
        names = {one.id for one in new}
        return _test([one for one in _drawn(pool[UNCHANGED], drawn) if one.id in names], new)

    lines = ["| unchanged code | comparisons | false alarms |", "|---|--:|--:|"]
    for words, draw in (("fresh seeds, all architectures", fresh),
                        ("same seeds, other arithmetic (`--kernel off`)", other_digits)):  # fmt: skip
        lines.append(f"| {words} | {_count(draw, repetitions)} of {repetitions} |")
    return "\n".join(lines)


def _count(draw: Callable[[], Comparisons], repetitions: int) -> str:
    found = [draw() for _ in range(repetitions)]
    return f"{len(found[0].rows)} | {sum(bool(one.of(LOST)) for one in found)}"


if __name__ == "__main__":
    main()
