"""The bounded loss -log(p + slack), in both ways of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from membench.engine.general import GeneralTrainer, loss_and_slope
from membench.engine.workbench import Workbench
from membench.interface.registry import Registry

REGISTRY = Registry()
BETAS = np.array([[0.95, 0.95]], dtype=np.float32)


def bench(name: str, **options: Any) -> Workbench:
    architecture, task = REGISTRY.architecture(name), REGISTRY.task("bigram")
    return Workbench(architecture, architecture.config(**options), task, task.config(N=11))


SHARE = torch.tensor([[0.1, 0.3, 0.05, 0.15, 0.2, 0.2]], dtype=torch.float64)


@pytest.mark.parametrize("slack", [None, torch.tensor([[0.1]], dtype=torch.float64)])
def test_the_slope_is_the_gradient_of_the_bounded_loss(slack: torch.Tensor | None) -> None:
    logits = torch.randn(1, 6, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(5, (1, 6))
    p = logits.softmax(-1).gather(-1, targets[..., None])[..., 0]
    minimised = -(p + (0.0 if slack is None else slack)).log()
    (expected,) = torch.autograd.grad((SHARE * minimised).sum(), logits)
    loss, slope = loss_and_slope(logits.detach(), targets, SHARE, slack)
    assert torch.allclose(slope, expected)
    assert torch.allclose(loss, (SHARE * -p.detach().log()).sum(dim=1))


def test_the_slope_is_the_gradient_for_distributions() -> None:
    logits = torch.randn(1, 6, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.rand(1, 6, 5, dtype=torch.float64)
    losses = -(targets * logits.log_softmax(-1)).sum(dim=-1)
    (expected,) = torch.autograd.grad((SHARE * losses).sum(), logits)
    loss, slope = loss_and_slope(logits.detach(), targets, SHARE, None)
    assert torch.allclose(slope, expected)
    assert torch.allclose(loss, (SHARE * losses.detach()).sum(dim=1))


@pytest.mark.parametrize("name", ["aot", "mlp-transformer"])
def test_a_kernel_without_slack_trains_to_the_same_bits_as_with_none(name: str) -> None:
    found = []
    for slack in (None, np.zeros((1, 60), dtype=np.float32)):
        workbench = bench(name)
        trainer = workbench.trainer([0], [(0.95, 0.95)], 60)
        trainer.advance(np.full((1, 60), 0.01, dtype=np.float32), slack=slack)
        found.append(trainer.state(0))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


@pytest.mark.parametrize("name", ["aot", "mlp-transformer"])
@pytest.mark.parametrize("start", [0.3 / 11, 1e-5])
def test_a_kernel_and_the_general_way_train_alike_with_slack(name: str, start: float) -> None:
    workbench = bench(name)
    slack = (start ** (1 - np.arange(40) / 40)).astype(np.float32)[None]
    rates = np.full((1, 40), 0.003, dtype=np.float32)
    fused = workbench.trainer([0], [(0.95, 0.95)], 40)
    general = GeneralTrainer([workbench.model(0)], [workbench.facts(0)], BETAS)
    seen = [trainer.advance(rates, slack=slack) for trainer in (fused, general)]
    assert type(fused) is not type(general)
    assert seen[0].loss[0, -1] == pytest.approx(seen[1].loss[0, -1], rel=1e-3)
    for key, value in fused.state(0).items():
        assert torch.allclose(value, general.state(0)[key], atol=2e-3), key


@pytest.mark.parametrize("way", ["fused", "general"])
def test_a_replica_that_finishes_keeps_what_was_seen_and_leaves_its_neighbours_alone(way: str) -> None:
    workbench = bench("aot", d=8, H=8)
    modules, facts = [workbench.model(seed) for seed in (0, 1)], [workbench.facts(seed) for seed in (0, 1)]
    betas = np.repeat(BETAS, 2, axis=0)
    make = REGISTRY.architecture("aot").kernel if way == "fused" else GeneralTrainer
    assert make is not None
    trainer = make(modules, facts, betas)
    seen = trainer.advance(np.full((2, 1500), 0.01, dtype=np.float32), finishes=True)
    for row in range(2):
        known = seen.accuracy[row][~np.isnan(seen.accuracy[row])]
        assert known[-1] == pytest.approx(1)
        assert (known[:-1] < 1 - 1e-6).all()
        assert np.isnan(seen.loss[row, -1])
        model = workbench.loaded(row, trainer.state(row))
        answers = model(torch.from_numpy(facts[row].inputs)).argmax(1).numpy()
        assert (answers == facts[row].targets).all()
