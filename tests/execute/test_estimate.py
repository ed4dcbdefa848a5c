"""Sweeps: random order that repeats itself, and estimates of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from subprocess import CompletedProcess

import pytest

from membench.engine.execution import Execution
from membench.engine.protocols.protocol import PROTOCOLS, Converged, Dana2024
from membench.execute import estimate as estimate_module
from membench.execute.estimate import Estimate, estimate, shuffled
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.records.record import Record

Membench = Callable[..., CompletedProcess[str]]
REGISTRY = Registry()
REQUEST = Request(["aot"], ["bigram"], ["d=2,3", "H=1:5"], ["N=5"], "quick", seeds=(0, 1))


def test_points_come_in_another_order_with_their_seeds_together() -> None:
    trials = plan(REGISTRY, REQUEST)
    mixed = shuffled(trials)
    assert mixed != trials
    assert sorted(t.id for t in mixed) == sorted(t.id for t in trials)
    assert [trial.seed for trial in mixed] == [0, 1] * 10
    assert all(a.id == b.id for a, b in zip(mixed[::2], mixed[1::2], strict=True))
    assert shuffled(list(reversed(trials)))[0].id == mixed[0].id


def test_the_work_of_a_protocol_counts_its_steps() -> None:
    dana, converged = PROTOCOLS["dana2024"], PROTOCOLS["converged"]
    assert dana.work is not None
    assert converged.work is not None
    assert dana.work(Dana2024(), 5) == 64 * 64 * 5
    assert converged.work(Converged(lr=0.01, beta1=0.9, beta2=0.99), 5) == 31_000 * 5
    assert converged.work(Converged(), 5) == 31_000 * 5 + 24_000


def test_shortened_protocols_take_the_steps_that_are_asked_for() -> None:
    for protocol in PROTOCOLS.values():
        if protocol.work is not None:
            assert protocol.shortened is not None
            assert protocol.work(protocol.shortened(protocol.config(), 20), 3) == 60


def test_an_estimate_is_made_from_trials_that_leave_no_record() -> None:
    trials = plan(REGISTRY, Request(["lookup"], ["bigram"], (), ["N=3,4"], "quick", seeds=(0,)))
    reported: list[float] = []
    found = estimate(trials, REGISTRY, Execution(jobs=2), reported.append)
    assert found.points == 2
    assert found.seconds > 0
    assert found.least <= found.most
    assert reported[-1] == 1.0
    assert estimate([], REGISTRY, Execution()) == Estimate(0.0, 0, 0.0, 0.0)


def test_a_protocol_that_trains_cannot_be_declared_without_a_way_to_take_few_steps() -> None:
    for name, protocol in PROTOCOLS.items():
        if protocol.trains:
            with pytest.raises(ValueError, match=f"protocol '{name}': trains=True, so that it must declare work"):
                replace(protocol, work=None)
    assert [name for name, protocol in PROTOCOLS.items() if not protocol.trains] == ["construct"]


def test_an_estimate_never_trains_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    trials = plan(REGISTRY, Request(["lookup"], ["bigram"], (), ["N=3"], "quick", ["steps=100000"], seeds=(0,)))

    def pretend(some: Sequence[Trial], *rest: object) -> list[Record]:
        taken.extend(trial.protocol_config.steps for trial in some)
        return []

    monkeypatch.setattr(estimate_module, "execute", pretend)
    monkeypatch.setattr(estimate_module, "MIN_DIFFERENCE", -1.0)
    estimate(trials, REGISTRY, Execution(jobs=1))
    assert set(taken) == {20, 100}


def test_durations_are_said_in_words() -> None:
    words = str(Estimate(600, 4, 20, 120))
    assert words == "at most about 10 min (one process needs 20 s to 2 min for a point; 4 were timed)"
    assert "2.0 h" in str(Estimate(7200, 4, 20, 120))


def test_a_trial_that_fails_does_not_stop_the_sweep_and_the_same_command_continues(
    membench: Membench, plugin_file: object
) -> None:
    command = ["sweep", "--plugin", str(plugin_file), "--model", "toy", "--task", "bigram", "-T", "N=4",
               "-M", "fault=none,raise", "--protocol", "quick", "-P", "steps=5", "--seeds", "2", "--json"]  # fmt: skip
    first = membench(*command)
    assert first.returncode == 3, first.stderr
    assert "broken on purpose" in first.stderr
    assert '"ran": 4' in first.stdout
    again = membench(*command)
    assert '"ran": 2' in again.stdout, again.stdout  # what failed is tried again, the rest is found
