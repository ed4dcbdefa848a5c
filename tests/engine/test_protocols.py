from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from membench.api import Architecture
from membench.engine.execution import Execution
from membench.engine.protocols.converged import BETAS, PROBE_SEEDS, RATES, choose, probe, settle
from membench.engine.protocols.dana2024 import _Pool
from membench.engine.protocols.protocol import PROTOCOLS, get_protocol
from membench.engine.workbench import Workbench
from membench.errors import UsageError
from membench.interface.facts import Facts
from membench.interface.registry import Registry
from membench.measure.evaluate import InvalidOutput, evaluate
from membench.measure.frozen import UnsavedState

REGISTRY = Registry()


def bench(model: str, task: str = "bigram", model_options: Any = None, **task_options: Any) -> Workbench:
    architecture, chosen = REGISTRY.architecture(model), REGISTRY.task(task)
    return Workbench(architecture, architecture.config(**(model_options or {})), chosen, chosen.config(**task_options))


def find(name: str, workbench: Workbench, seeds: list[int], **options: Any) -> Any:
    protocol = get_protocol(name)
    return protocol.find_weights(workbench, protocol.config(**options), seeds)


SETTING = {"lr": 0.02, "beta1": 0.95, "beta2": 0.95}


def test_converged_memorises_what_fits_and_stops_then() -> None:
    outcomes = find("converged", bench("aot", model_options={"d": 8, "H": 4}, N=6), [0, 1], **SETTING)
    for outcome in outcomes:
        assert evaluate(outcome.module, outcome.facts, 0).accuracy == pytest.approx(1)
        assert outcome.trace["converged"]
        assert outcome.trace["steps"] < 1000


def test_converged_goes_on_while_longer_rounds_help_and_says_so_when_it_had_to_stop() -> None:
    workbench = bench("aot", model_options={"d": 6, "H": 3}, N=8)
    (outcome,) = find("converged", workbench, [0], steps=40, rounds=3, **SETTING)
    rounds = outcome.trace["rounds"]
    assert [entry["steps"] for entry in rounds] == [40, 80, 160]
    assert rounds[2]["accuracy"] > rounds[1]["accuracy"] > rounds[0]["accuracy"]
    assert not outcome.trace["converged"]


def test_converged_keeps_the_best_round() -> None:
    workbench = bench("aot", model_options={"d": 4, "H": 2}, N=6)
    (outcome,) = find("converged", workbench, [0], steps=20, rounds=6, **SETTING)
    best = max(entry["accuracy"] for entry in outcome.trace["rounds"])
    assert evaluate(outcome.module, outcome.facts, 0).accuracy == pytest.approx(best)


def test_distributions_are_judged_by_divergence() -> None:
    workbench = bench("sequence-encoder", "geometric", {"d": 5}, N=6)
    (outcome,) = find("converged", workbench, [0], steps=100, rounds=6, lr=0.05, beta1=0.9, beta2=0.999)
    assert outcome.trace["converged"]
    assert min(entry["kl"] for entry in outcome.trace["rounds"]) < 1e-2  # d = N - 1 leaves no floor


def test_the_setting_is_chosen_on_seeds_that_nobody_measures() -> None:
    workbench = bench("aot", model_options={"d": 4, "H": 2}, N=5)
    one, other = (find("converged", workbench, [seed], steps=8, rounds=1)[0] for seed in (0, 7))
    assert one.trace["choice"] == other.trace["choice"]
    choice = one.trace["choice"]
    assert len(choice["tried"]) == len(RATES) * len(BETAS)
    assert choice["lr"] == max(choice["tried"], key=lambda entry: entry["score"])["lr"]
    assert choice["edge"] == (choice["lr"] in (RATES[0], RATES[-1]))


def test_each_probe_seed_is_a_part_of_its_own() -> None:
    assert get_protocol("converged").probes == len(PROBE_SEEDS)
    workbench, config = bench("aot", model_options={"d": 4, "H": 2}, N=5), get_protocol("converged").config(steps=8)
    parts = [probe(workbench, config, part) for part in range(len(PROBE_SEEDS))]
    assert settle(config, parts) == choose(workbench, config)
    assert parts[0] != parts[1]


def test_nothing_is_probed_when_nothing_is_open() -> None:
    (outcome,) = find("converged", bench("aot", N=5), [0], steps=2, rounds=1, **SETTING)
    assert outcome.trace["choice"] == {**SETTING, "edge": False, "tried": []}
    with pytest.raises(ValueError, match="set both or none"):
        get_protocol("converged").config(beta1=0.9)


def test_a_setting_that_diverges_is_recorded_and_the_grid_goes_on() -> None:
    def build(shape: Any, config: Any) -> torch.nn.Module:
        class Explosive(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.full((shape.vocab,), 0.01))

            def forward(self, tokens: torch.Tensor) -> torch.Tensor:
                return (200 * self.weight.abs()).exp().square().expand(len(tokens), -1)

        return Explosive()

    workbench = Workbench(toy(build), toy(build).config(), REGISTRY.task("bigram"), REGISTRY.task("bigram").config(N=4))
    assert choose(workbench, get_protocol("converged").config(steps=200))["lr"] < RATES[-1]
    (outcome,) = find("converged", workbench, [0], **{**SETTING, "lr": 5.0}, steps=50, rounds=2)
    assert "NaN" in outcome.trace["rounds"][0]["diverged"]
    assert not outcome.trace["converged"]
    with pytest.raises(InvalidOutput, match="NaN"):
        evaluate(outcome.module, outcome.facts, 0)


def toy(build: Any) -> Architecture[Any]:
    config = REGISTRY.architecture("lookup").config
    return Architecture(name="toy", summary="", reference="", config=config, build=build)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    runs = [find("quick", bench("aot", N=10), [3])[0] for _ in range(2)] + [find("quick", bench("aot", N=10), [4])[0]]
    states = [torch.cat([v.flatten() for v in run.module.state_dict().values()]) for run in runs]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    find("quick", bench("aot", N=6), [0], steps=2)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("construction", ["hebb", "pseudo-inverse"])
def test_construct_uses_the_architecture_s_closed_form(construction: str) -> None:
    (outcome,) = find(
        "construct", bench("linear-memory", model_options={"d": 64}, N=20, T0=10), [0], construction=construction
    )
    assert outcome.trace["construction"] == construction
    assert evaluate(outcome.module, outcome.facts, 0).accuracy == pytest.approx(1)
    assert next(outcome.module.parameters()).dtype == torch.float64


def test_construct_needs_a_construction() -> None:
    with pytest.raises(UsageError, match="'lookup' has no construction"):
        find("construct", bench("lookup"), [0])
    with pytest.raises(UsageError, match="did you mean 'hebb'"):
        find("construct", bench("linear-memory"), [0], construction="heb")


def test_an_unknown_protocol_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'converged'"):
        get_protocol("convergd")


def test_only_quick_is_left_out_of_rankings() -> None:
    assert [name for name, protocol in PROTOCOLS.items() if not protocol.ranked] == ["quick"]


def test_a_kernel_asked_for_where_there_is_none_is_a_usage_error() -> None:
    workbench = bench("lookup", N=4)
    workbench.execution = Execution(kernel="on")
    with pytest.raises(UsageError, match="--kernel on: lookup: this architecture has no kernel"):
        find("quick", workbench, [0], steps=1)


def test_what_is_learned_outside_the_state_dict_is_refused_before_it_is_measured() -> None:
    def build(shape: Any, config: Any) -> torch.nn.Module:
        class Cheat(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(shape.vocab))
                self.calls = 0

            def forward(self, tokens: torch.Tensor) -> torch.Tensor:
                self.calls += 1
                return self.weight.expand(len(tokens), -1) + float(self.calls > 3) * torch.nn.functional.one_hot(
                    tokens[:, 0], shape.vocab
                )

        return Cheat()

    task = REGISTRY.task("bigram")
    with pytest.raises(UnsavedState, match="not in the state_dict"):
        find("quick", Workbench(toy(build), toy(build).config(), task, task.config(N=4)), [0], steps=5)


def test_dana2024_draws_a_pool_once_and_reports_the_published_metric() -> None:
    workbench = bench("aot", model_options={"d": 8, "H": 4}, N=6)
    outcomes = find("dana2024", workbench, [0, 1], batches=10, batch=16, epochs=30)
    for outcome in outcomes:
        assert outcome.trace["steps"] == 300
        assert len(outcome.trace["curve"]) == 30
        # the mean over the last 100 batches is the mean over the last ten epochs
        assert outcome.metrics["stream_accuracy"] == pytest.approx(sum(outcome.trace["curve"][-10:]) / 10, abs=1e-5)
        assert outcome.metrics["stream_accuracy"] > 0.5


def test_a_pool_follows_prior_and_conditionals() -> None:
    targets = np.array([[0.8, 0.2, 0.0], [0.0, 0.5, 0.5]])
    facts = Facts(np.array([[0], [1]]), targets, np.array([0.9, 0.1]), vocab=2, answers=3)
    pool = _Pool(facts, get_protocol("dana2024").config(batches=100, batch=200), seed=0)
    assert np.mean(pool.contexts == 0) == pytest.approx(0.9, abs=0.01)
    first = pool.labels[pool.contexts == 0]
    assert np.bincount(first, minlength=3) / len(first) == pytest.approx([0.8, 0.2, 0], abs=0.01)
    one, other = pool.epoch(), pool.epoch()
    assert one[0].shape == (100, 200)
    assert not np.array_equal(one[0], other[0])
    assert np.array_equal(np.sort(one[0], axis=None), np.sort(other[0], axis=None))  # the same samples, reshuffled


@pytest.mark.parametrize("name", ["quick", "converged", "dana2024"])
@pytest.mark.parametrize("A", [3, 9])
@pytest.mark.parametrize("model", sorted(name for name, one in REGISTRY.architectures.items() if not one.missing))
def test_every_protocol_trains_every_architecture_on_other_answers_than_tokens(model: str, A: int, name: str) -> None:
    options = {"quick": {"steps": 3}, "converged": {"steps": 3, "rounds": 2, **SETTING}}
    few = options.get(name, {"batches": 3, "batch": 8, "epochs": 2})
    for task in ("bigram", "low-entropy"):
        (outcome,) = find(name, bench(model, task, N=5, A=A), [0], **few)
        assert outcome.facts.shape.answers == A
        assert np.isfinite(evaluate(outcome.module, outcome.facts, 1).kl)


def test_dana2024_takes_a_batch_larger_than_the_facts() -> None:
    (outcome,) = find("dana2024", bench("lookup", N=3), [0], batches=2, batch=64, epochs=2)
    assert outcome.trace["steps"] == 4


def overloaded(**options: Any) -> Workbench:
    """A model that is asked for about twice what it can hold."""
    return bench("aot", model_options={"d": 4, "H": 2}, N=16, **options)


def test_where_too_much_is_asked_more_facts_are_held_than_the_least_loss_holds() -> None:
    settings = {"steps": 300, "rounds": 3, "lr": 0.01, "beta1": 0.95, "beta2": 0.95}
    before = find("converged-v1", overloaded(), [0, 1], **settings)
    after = find("converged", overloaded(), [0, 1], **settings)
    for one, other in zip(before, after, strict=True):
        assert other.least_loss is not None
        held = [evaluate(module, other.facts, 1) for module in (one.module, other.module, other.least_loss)]
        assert held[1].accuracy > 1.3 * held[0].accuracy
        assert held[2].kl == pytest.approx(held[0].kl, rel=1e-6)  # the first stage is version 1
        assert held[1].kl > held[2].kl
        reached = [entry["accuracy"] for entry in other.trace["bounded"]]
        assert held[1].accuracy == max(*reached, *(entry["accuracy"] for entry in other.trace["rounds"]))
        assert other.trace["most_facts"]["loss"] == "bounded"


def test_where_everything_fits_the_second_stage_costs_nothing() -> None:
    (outcome,) = find("converged", bench("lookup", N=5), [0], steps=200)
    assert outcome.least_loss is None
    assert "bounded" not in outcome.trace
    assert evaluate(outcome.module, outcome.facts, 1).accuracy == 1


def test_a_distribution_is_trained_for_its_divergence_alone() -> None:
    task = REGISTRY.task("low-entropy")
    architecture = REGISTRY.architecture("aot")
    workbench = Workbench(architecture, architecture.config(d=3, H=1), task, task.config(N=6))
    settings = {"steps": 100, "rounds": 2, "lr": 0.01, "beta1": 0.95, "beta2": 0.95}
    (before,), (after,) = (find(name, workbench, [0], **settings) for name in ("converged-v1", "converged"))
    assert after.least_loss is None
    assert all(torch.equal(a, b) for a, b in zip(before.module.parameters(), after.module.parameters(), strict=True))


@pytest.mark.parametrize("kernel", ["auto", "off"])
def test_weights_that_were_seen_to_be_all_right_are_the_weights_that_are_kept(kernel: str) -> None:
    """Version 1 stopped on the accuracy before an update and kept the weights after it."""
    architecture, task = REGISTRY.architecture("aot"), REGISTRY.task("bigram")
    workbench = Workbench(
        architecture, architecture.config(d=6, H=3), task, task.config(N=16, T0=60), Execution(kernel=kernel)
    )
    for outcome in find("converged", workbench, [0, 1, 2, 3], steps=600, rounds=1, lr=0.01, beta1=0.95, beta2=0.95):
        if outcome.trace["rounds"][0]["curve"][-1] >= 1 - 1e-6:
            assert outcome.trace["rounds"][0]["accuracy"] == 1


def test_both_versions_are_there_by_name_and_by_what_records_say() -> None:
    assert get_protocol("converged").version == get_protocol("converged", 2).version == 2
    assert get_protocol("converged-v1") is get_protocol("converged", 1)
    with pytest.raises(UsageError, match="version 9 of protocol converged, and version 1 and 2 is installed"):
        get_protocol("converged", 9)


def test_progress_never_goes_back() -> None:
    seen: list[float] = []
    workbench = overloaded()
    workbench.report = lambda fraction, text: seen.append(fraction)
    find("converged", workbench, [0], steps=200, rounds=2, lr=0.01, beta1=0.0, beta2=0.95)
    assert seen == sorted(seen)
    assert max(seen) <= 1
    assert any(fraction > 0.5 for fraction in seen)
