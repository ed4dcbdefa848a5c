"""Sweeps: random order that repeats itself, and estimates of time."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

from membench.commands.sweep import in_words
from membench.engine.protocols.protocol import PROTOCOLS, Converged, Dana2024
from membench.execute.estimate import Estimate, estimate, shuffled
from membench.execute.execution import Execution
from membench.interface.registry import Registry
from membench.plan.request import Request, plan

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
    found = estimate(trials, REGISTRY.selection, Execution(jobs=2), reported.append)
    assert found.points == 2
    assert found.seconds > 0
    assert found.least <= found.most
    assert reported[-1] == 1.0
    assert estimate([], REGISTRY.selection, Execution()) == Estimate(0.0, 0, 0.0, 0.0)


def test_durations_are_said_in_words() -> None:
    words = in_words(Estimate(600, 4, 20, 120))
    assert words == "at most about 10 min (one process needs 20 s to 2 min for a point; 4 were timed)"
    assert "2.0 h" in in_words(Estimate(7200, 4, 20, 120))


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
