"""The worker process: one job, from names to records. All that imports torch and plugins' models happens here."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from membench.engine.execution import Execution
from membench.errors import MembenchError, NotApplicable, UsageError
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


def serve(job: Job, connection: Connection) -> None:
    """Entry point of the process. Talks in JSON, so that nothing a plugin does can reach the parent but text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    os.dup2(2, 1)  # a plugin that prints must not end up in somebody's --json
    talk = _Talk(connection)
    try:
        registry = Registry(job.selection)
        if job.seeds:
            for record, content in run_job(job, registry, talk.progress):
                talk.say(kind="record", record=record.to_json(), weights=content is not None)
                if content is not None:
                    talk.send(content)
        else:
            talk.say(kind="probe", scores=run_probe(job, registry, talk.progress))
    except MembenchError as error:
        talk.say(kind="error", text=str(error), exit_code=error.exit_code)
    connection.close()


class _Talk:
    def __init__(self, connection: Connection) -> None:
        self.connection, self.last = connection, 0.0

    def say(self, **message: Any) -> None:
        self.send(json.dumps(message).encode())

    def send(self, content: bytes) -> None:
        try:
            self.connection.send_bytes(content)
        except BrokenPipeError:
            os._exit(1)  # the parent was interrupted and has gone: there is nobody to work for

    def progress(self, fraction: float, text: str) -> None:
        if time.monotonic() - self.last > 0.1:
            self.last = time.monotonic()
            self.say(kind="progress", fraction=fraction, text=text)


Report = Callable[[float, str], None]  # fraction done, and a few words


def _silent(fraction: float, text: str) -> None:
    pass


def run_probe(job: Job, registry: Registry, report: Report = _silent) -> list[float] | None:
    """One of the protocol's probes for a point. If that fails, each seed will fail on its own and say why."""
    try:
        runner = _JobRunner(job, registry, report)
        return runner.protocol.probe(runner.workbench, runner.protocol_config, job.part)
    except MembenchError:
        raise
    except Exception:
        return None


def run_job(job: Job, registry: Registry, report: Report = _silent) -> list[Result]:
    """What all seeds of the job left. When a group fails as a whole, each seed gets its own try."""
    runner = _JobRunner(job, registry, report)
    try:
        return runner.results(job.seeds)
    except MembenchError:
        raise
    except Exception as error:
        if len(job.seeds) == 1:
            return [Result(runner.failure(job.seeds[0], error))]
    return [result for seed in job.seeds for result in run_job(replace(job, seeds=(seed,)), registry, report)]


class _JobRunner:
    """A job with its names looked up."""

    def __init__(self, job: Job, registry: Registry, report: Report) -> None:
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
        )
        self.started, self.clock = datetime.now(UTC), time.perf_counter()

    def results(self, seeds: Sequence[int]) -> list[Result]:
        outcomes = self.protocol.find_weights(self.workbench, self.protocol_config, seeds)
        return [self._result(outcome, len(seeds)) for outcome in outcomes]

    def _result(self, outcome: Any, replicas: int) -> Result:
        """One seed whose weights make no sense must not cost the others their training."""
        try:
            state = {name: value.clone() for name, value in outcome.module.state_dict().items()}  # before any question
            other = outcome.least_loss.state_dict() if outcome.least_loss is not None else None
            content = weights.to_bytes(state, other) if self.job.execution.keep_weights else None
            return Result(self._record(outcome, replicas, state, content), content)
        except Exception as error:
            return Result(self.failure(outcome.seed, error))

    def _record(self, outcome: Any, replicas: int, state: dict[str, Any], content: bytes | None) -> Record:
        import torch

        from membench.measure.evaluate import evaluate
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
        size = count_size(state, fresh, bench.shape, bench.architecture.embeddings, widths_of(config))
        tokens = torch.from_numpy(outcome.facts.inputs[:8]).to(bench.execution.device)
        size = replace(
            size,
            without_gradient=count_without_gradient(module, tokens),
            identifiable=self._identifiable(),
            storage_bits=size.storage_bits + (0 if bench.architecture.origin.is_built_in else option_bits(config)),
        )
        metrics = asdict(evaluate(module, outcome.facts, size.parameters))
        if outcome.least_loss is not None:
            other = asdict(evaluate(outcome.least_loss, outcome.facts, size.parameters))
            outcome.trace["reached"] = {
                which: {name: one[name] for name in ("accuracy", "kl")}
                for which, one in (("most_facts", metrics), ("least_loss", other))
            }
            metrics |= {name: other[name] for name in LEAST_LOSS}
        if self.job.execution.floor:
            metrics["excess_kl"], outcome.trace["floor"] = self._over_the_floor(outcome.facts, metrics["kl"])
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

    def _identifiable(self) -> int | None:
        count = self.workbench.architecture.identifiable
        try:
            return count(self.workbench.shape, self.workbench.config) if count else None
        except NotApplicable:
            return None

    def _over_the_floor(self, facts: Facts, kl: float) -> tuple[float, dict[str, Any]]:
        """Divergence beyond the best rank-d logits that are known, this model's own among them."""
        from membench.theory.floor import floor

        width = self.workbench.architecture.bottleneck
        if width is None:
            raise MembenchError(f"--floor: {self.workbench.architecture.name} declares no bottleneck")
        (interval,) = floor(facts, [width(self.workbench.config)])
        interval = interval.including(kl)
        return kl - interval.upper, asdict(interval)

    def failure(self, seed: int, error: Exception) -> Record:
        """A trial that failed is a record too: it says why, and it is tried again next time."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        return self._base(
            seed,
            status="failed",
            error=f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}, line {where.lineno})",
            trace={"traceback": traceback.format_exception(error)[-12:]},
            environment=describe_environment(self.job.execution.device, self.job.threads, ""),
            run=self._timing(1),
        )

    def _timing(self, replicas: int) -> dict[str, Any]:
        """Seconds are the job's, shared evenly among the replicas that it trained together."""
        seconds = (time.perf_counter() - self.clock) / replicas
        return {"started": self.started.isoformat(timespec="seconds"), "seconds": seconds, "replicas": replicas}

    def _base(self, seed: int, facts: Facts | None = None, **fields: Any) -> Record:
        point = self.job.point
        bench = self.workbench
        return Record(
            id=point.id,
            seed=seed,
            architecture={**_origin(bench.architecture), **_config(bench.config)},
            task={**_origin(bench.task), **_config(bench.task_config), **(_facts(facts) if facts else {})},
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
        raise UsageError(f"device '{device}' is not there; this machine has: {there}")
    return execution
