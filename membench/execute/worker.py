"""The worker process: one job, from names to records. All that imports torch and plugins' models happens here."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from membench.engine.execution import Execution
from membench.errors import Impossible, MembenchError, NotApplicable, in_words, place
from membench.execute.allocator import keep_freed_memory
from membench.execute.isolated import Talk
from membench.execute.job import Job, Result
from membench.interface.bound import Setting
from membench.interface.declarations import Architecture, Task
from membench.interface.facts import Facts
from membench.interface.options import label, to_dict
from membench.interface.registry import Registry
from membench.measure.environment import describe_environment, describe_git
from membench.measure.metrics import LEAST_LOSS
from membench.plan.trial import Trial
from membench.records import weights
from membench.records.record import Record
from membench.theory.evaluate import evaluate_bounds
from membench.theory.limits import missed_guarantee


def serve(job: Job, talk: Talk) -> None:
    """All that a worker process does: tell the records of its job, or the scores of a probe, one by one."""
    keep_freed_memory()
    try:
        registry = Registry(job.selection)
        if job.seeds:
            for record, content in run_job(job, registry, talk.progress):
                talk.say(kind="record", record=record.to_json(), weights=content is not None)
                if content is not None:
                    talk.send(content)
        else:
            scores, seconds = run_probe(job, registry, talk.progress)
            talk.say(kind="probe", scores=scores, seconds=seconds)
    except Impossible as error:
        talk.say(kind="impossible", text=str(error))
    except BaseException as error:  # the plugin did not load here, or worse
        talk.say(kind="failed", text=str(error) if isinstance(error, MembenchError) else in_words(error))


Report = Callable[[float, str], None]  # fraction done, and a few words


def _silent(fraction: float, text: str) -> None:
    pass


def run_probe(job: Job, registry: Registry, report: Report = _silent) -> tuple[list[float] | None, float]:
    """One of the protocol's probes for a point, and its CPU seconds.

    If it fails, there are no scores: each seed will fail on its own and say why.
    """
    started = time.process_time()
    try:
        runner = _JobRunner(job, registry, report)
        scores = runner.protocol.probe(runner.workbench, runner.protocol_config, job.part)
    except (Impossible, KeyboardInterrupt):
        raise
    except BaseException:  # a plugin may even call sys.exit
        return None, 0.0
    return scores, time.process_time() - started


def run_job(job: Job, registry: Registry, report: Report = _silent, notes: Sequence[str] = ()) -> Iterator[Result]:
    """What all seeds of the job left, one after the other. When a group fails as a whole, each seed gets its own try.

    Raises what the plugin raises if it cannot be found here at all.
    """
    runner = _JobRunner(job, registry, report, notes)
    try:
        outcomes = runner.find_weights(job.seeds)
    except (Impossible, KeyboardInterrupt):
        raise
    except BaseException as error:
        if len(job.seeds) == 1:
            yield Result(runner.failure(job.seeds[0], error))
            return
        notes = [f"trained apart from the other seeds: together they failed: {in_words(error)}"]
        outcomes = []
    for outcome in outcomes:
        yield runner.result(outcome, len(job.seeds))
    for seed in () if outcomes else job.seeds:
        yield from run_job(replace(job, seeds=(seed,)), registry, report, notes)


class _JobRunner:
    """A job with its names looked up."""

    def __init__(self, job: Job, registry: Registry, report: Report, notes: Sequence[str] = ()) -> None:
        import torch

        from membench.engine.workbench import Workbench

        torch.set_num_threads(job.threads)
        self.job, self.registry = job, registry
        trial = Trial.of(job.point, registry, seed=0)
        self.protocol, self.protocol_config = trial.protocol, trial.protocol_config
        self.workbench = Workbench(
            architecture=trial.architecture,
            config=trial.config,
            task=trial.task,
            task_config=trial.task_config,
            execution=_check_device(job.execution),
            probed=json.loads(job.probed) if job.probed else None,
            report=report,
            notes=list(notes),
        )
        self.started, self.clock, self.cpu_clock = datetime.now(UTC), time.perf_counter(), time.process_time()

    def find_weights(self, seeds: Sequence[int]) -> list[Any]:
        bench = self.workbench
        if bench.architecture.check:
            bench.architecture.check(bench.shape, bench.config)
        return list(self.protocol.find_weights(bench, self.protocol_config, seeds))

    def result(self, outcome: Any, replicas: int) -> Result:
        """One seed whose weights make no sense must not cost the others their training."""
        try:
            state = {name: value.clone() for name, value in outcome.module.state_dict().items()}  # before any question
            other = outcome.least_loss.state_dict() if outcome.least_loss is not None else None
            content = weights.to_bytes(state, other) if self.job.execution.keep_weights else None
            return Result(self._record(outcome, replicas, state, content), content)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Result(self.failure(outcome.seed, error))

    def _record(self, outcome: Any, replicas: int, state: dict[str, Any], content: bytes | None) -> Record:
        import torch

        from membench.measure.evaluate import evaluate
        from membench.measure.questions import ask_one_by_one
        from membench.measure.size import (
            count_size,
            count_without_gradient,
            describe_fresh,
            float_bits,
            float_type,
            option_bits,
            widths_of,
        )

        bench, module = self.workbench, outcome.module
        dtype = float_type(state)
        fresh, config = describe_fresh(bench.model(outcome.seed, dtype)), to_dict(bench.config)
        tokens = torch.from_numpy(outcome.facts.inputs[:8]).to(bench.execution.device)
        questions = ask_one_by_one(module, tokens)
        size = count_size(state, fresh, bench.shape, bench.architecture.embeddings, widths_of(config), questions)
        size = replace(
            size,
            without_gradient=count_without_gradient(module, tokens),
            identifiable=self._declared("identifiable"),
            active=size.active if bench.architecture.active is None else self._declared("active"),
            state=self._declared("state"),
            code_bytes=self.registry.code_bytes(bench.architecture.name),
            storage_bits=size.storage_bits + (0 if bench.architecture.origin.is_built_in else option_bits(config)),
        )
        metrics: dict[str, Any] = evaluate(module, outcome.facts, size.parameters).as_record()
        if outcome.least_loss is not None:
            other = evaluate(outcome.least_loss, outcome.facts, size.parameters).as_record()
            outcome.trace["reached"] = {
                which: {name: one[name] for name in ("accuracy", "kl")}
                for which, one in (("most_facts", metrics), ("least_loss", other))
            }
            metrics |= {name: other[name] for name in LEAST_LOSS}
        for name in self.job.execution.quantize:
            metrics |= self._quantized(name, outcome, state, fresh)
        if self.job.execution.floor:
            metrics["excess_kl"], outcome.trace["floor"] = self._over_the_floor(outcome.facts, metrics["kl"])
        self._check_embeddings(state)
        setting = Setting(bench.architecture.name, bench.config, outcome.facts, size.parameters, float_bits(state))
        bounds = [asdict(value) for value in evaluate_bounds(self.registry.bounds, setting)]
        missed = missed_guarantee(metrics, bounds)
        notes = [*bench.notes, *([missed] if missed else [])]
        return self._base(
            outcome.seed,
            status="complete",
            facts=outcome.facts,
            metrics={**metrics, **outcome.metrics},
            size=asdict(size),
            bounds=bounds,
            trace={**outcome.trace, "paths": sorted(bench.paths), "notes": notes},
            environment=describe_environment(
                bench.execution.device, self.job.threads, dtype, bench.architecture.packages
            ),
            run=self._timing(replicas),
            weights=weights.describe(content, f"{self.job.point.id}-s{outcome.seed}") if content else None,
        )

    def _quantized(self, name: str, outcome: Any, state: dict[str, Any], fresh: Any) -> dict[str, float | None]:
        """What the weights are worth once they are rounded, and what they take then."""
        from membench.measure.evaluate import evaluate
        from membench.measure.quantize import MEASURED, STORED, quantized, quantized_name, stored_bits

        bench, seed = self.workbench, outcome.seed
        rounded = bench.loaded(seed, quantized(state, fresh, name))
        found: dict[str, float | None] = evaluate(rounded, outcome.facts, parameters=0).as_record()
        if outcome.least_loss is not None:
            least = bench.loaded(seed, quantized(outcome.least_loss.state_dict(), fresh, name))
            other = evaluate(least, outcome.facts, parameters=0).as_record()
            found |= {metric: other[metric] for metric in LEAST_LOSS}
        found = {metric: found[metric] for metric in MEASURED} | {STORED: stored_bits(state, fresh, name)}
        return {quantized_name(metric, name): value for metric, value in found.items()}

    def _declared(self, count: str) -> int | None:
        """A number that the architecture works out from its config; None where it does not."""
        function = getattr(self.workbench.architecture, count)
        try:
            return function(self.workbench.shape, self.workbench.config) if function else None
        except NotApplicable:
            return None
        except (Exception, SystemExit) as error:
            self.workbench.note(f"{count} failed: {in_words(error)}")
            return None

    def _check_embeddings(self, state: Mapping[str, Any]) -> None:
        """One that names a parameter is enough: with other options there may be other tables."""
        from membench.measure.size import is_under

        prefixes = self.workbench.architecture.embeddings
        if prefixes and not any(is_under(name, prefix) for name in state for prefix in prefixes):
            told = " or ".join(f"'{prefix}'" for prefix in prefixes)
            self.workbench.note(
                f"embeddings: no parameter is under {told}, so nothing is left out of any count; "
                f"there are: {', '.join(state)[:200]}"
            )

    def _over_the_floor(self, facts: Facts, kl: float) -> tuple[float, dict[str, Any]]:
        """Divergence beyond the best rank-d logits that are known, this model's own among them."""
        from membench.theory.floor import floor

        width = self.workbench.architecture.bottleneck
        if width is None:
            raise MembenchError(f"--floor: {self.workbench.architecture.name} declares no bottleneck")
        (interval,) = floor(facts, [width(self.workbench.config)])
        interval = interval.including(kl)
        return kl - interval.upper, asdict(interval)

    def failure(self, seed: int, error: BaseException) -> Record:
        """A trial that failed is a record too: it says why, and it is tried again next time."""
        where = place(error, self.registry.files_of(self.workbench.architecture.name))
        return self._base(
            seed,
            status="failed",
            error=f"{in_words(error, 2000)}{where}",
            trace={"traceback": traceback.format_exception(error)[-12:], "notes": list(self.workbench.notes)},
            environment=describe_environment(self.job.execution.device, self.job.threads, ""),
            run=self._timing(1),
        )

    def _timing(self, replicas: int) -> dict[str, Any]:
        """Seconds are the job's, shared evenly among the replicas that it trained together; probes are apart."""
        return {
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": (time.perf_counter() - self.clock) / replicas,
            "cpu_seconds": (time.process_time() - self.cpu_clock) / replicas,
            **({"probe_cpu_seconds": self.job.probe_seconds} if self.job.probed else {}),
            "replicas": replicas,
        }

    def _base(self, seed: int, facts: Facts | None = None, **fields: Any) -> Record:
        point = self.job.point
        bench = self.workbench
        return Record(
            id=point.id,
            seed=seed,
            architecture={**_origin(bench.architecture), **_config(bench.config)},
            task={
                **_origin(bench.task),
                **_config(bench.task_config),
                **({"attribution": bench.task.attribution} if bench.task.attribution else {}),
                **(_facts(facts) if facts else {}),
            },
            protocol={"name": point.protocol, "version": point.protocol_version, **_config(self.protocol_config)},
            git=describe_git(),
            **fields,
        )


def _origin(item: Architecture[Any] | Task[Any]) -> dict[str, Any]:
    """Which code it was."""
    return {
        "name": item.name,
        "version": item.version,
        "distribution": item.origin.distribution,
        "distribution_version": item.origin.version,
        "commit": item.origin.commit,
        "code_sha256": item.origin.code_sha256,
    }


def _config(config: Any) -> dict[str, Any]:
    return {"config": to_dict(config), "label": label(config)}


def _facts(facts: Facts) -> dict[str, Any]:
    """What was asked, so that no reader has to infer it."""
    return {
        "kind": "association" if facts.is_association else "distribution",
        "contexts": len(facts),
        "vocab": facts.vocab,
        "answers": facts.answers,
        "length": facts.shape.length,
        "data_sha256": facts.sha256(),
    }


def _check_device(execution: Execution) -> Execution:
    import torch

    device = execution.device
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(device.partition(":")[0], False):
        there = ", ".join(name for name, is_there in present.items() if is_there)
        raise Impossible(f"device '{device}' is not available; this machine has: {there}")
    return execution
