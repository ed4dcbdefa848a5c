"""Architectures of other packages, where those are installed: shapes, counts, initial weights, and short trainings."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.nn.functional import cross_entropy

import membench
from membench.api import BudgetTooSmall, Shape
from membench.cli import cli
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.plan.request import Request, plan

REGISTRY = Registry()
BRIDGES = {name: one for name, one in REGISTRY.architectures.items() if one.packages}
HF = ("gpt2", "llama", "mamba", "mixtral", "mistral", "qwen2", "gpt_neox", "opt", "falcon", "gptj")
MODELS: list[tuple[str, dict[str, Any]]] = [
    *(("x-transformers", {"preset": name}) for name in ("plain", "attention-only", "memory", "glu", "tied")),
    ("mamba", {}),
    ("mamba", {"layers": 2, "d_state": 4, "expand_factor": 1, "d_conv": 2}),
    *(("hf", {"config": name}) for name in HF),
    ("hf", {"config": "gpt2", "tied": False, "dropout": 0.2, "n_inner": 24}),
    ("hf", {"config": "llama", "n_kv_head": 1, "tied": True}),
    ("hf", {"config": "mixtral", "n_expert": 3, "n_expert_used": 1}),
    ("hf", {"config": "mamba", "n_state": 3}),
]


def need(name: str) -> Any:
    """The architecture, in an environment that has what it wraps."""
    for package in BRIDGES[name].packages:
        pytest.importorskip(package)
    return BRIDGES[name]


def build(name: str, options: dict[str, Any], shape: Shape, seed: int = 0) -> nn.Module:
    architecture = need(name)
    config = architecture.config(**options)
    if architecture.check:
        architecture.check(shape, config)
    torch.manual_seed(seed)
    module: nn.Module = architecture.build(shape, config)
    return module


def every_context(shape: Shape) -> torch.Tensor:
    return torch.cartesian_prod(*[torch.arange(shape.vocab)] * shape.length).reshape(-1, shape.length)


def test_the_bridges_are_declared_with_what_they_need() -> None:
    assert {name: dict(one.packages) for name, one in BRIDGES.items()} == {
        "x-transformers": {"x_transformers": "membench[x-transformers]"},
        "hf": {"transformers": "membench[hf]"},
        "mamba": {"mambapy": "membench[mamba]"},
    }


def test_each_has_an_extra_of_its_own() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))["project"]
    for one in BRIDGES.values():
        for pip in one.packages.values():
            assert pip.removeprefix("membench[").removesuffix("]") in project["optional-dependencies"]


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_a_bridge_answers_and_trains_every_parameter(name: str, options: dict[str, Any]) -> None:
    for shape in (Shape(6, 2, 6), Shape(5, 3, 8), Shape(8, 1, 3)):
        module, tokens = build(name, options, shape), every_context(shape)
        logits = module.eval()(tokens)
        assert logits.shape == (len(tokens), shape.answers)
        assert logits.dtype == torch.float32
        assert torch.equal(module(tokens[:2]), logits[:2]) or torch.allclose(module(tokens[:2]), logits[:2], atol=1e-5)
    module, tokens = build(name, options, Shape(6, 2, 6)), every_context(Shape(6, 2, 6))
    cross_entropy(module(tokens), tokens[:, 0]).backward()
    assert [key for key, p in module.named_parameters() if p.grad is None or p.grad.abs().max() == 0] == []
    assert all(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_its_answer_depends_on_every_token(name: str, options: dict[str, Any]) -> None:
    """On all of them, the first and the last, and on their order."""
    module = build(name, options, Shape(6, 3, 6)).eval()
    one, *others = module(torch.tensor([[1, 2, 3], [4, 2, 3], [1, 4, 3], [1, 2, 4], [2, 1, 3]]))
    assert all((one - other).abs().max() > 1e-7 for other in others)


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        # d (N + S) + 12 d^2 + 13 d of a layer + 2 d of the last norm
        ("hf", {"config": "gpt2"}, 16 * 22 + 12 * 256 + 15 * 16),
        ("hf", {"config": "gpt2", "n_layer": 3, "n_embd": 8}, 8 * 22 + 3 * (12 * 64 + 13 * 8) + 2 * 8),
        ("hf", {"config": "gpt2", "tied": False}, 16 * 42 + 12 * 256 + 15 * 16),
        # d 2 N + 4 d^2 + 3 d w + 3 d
        ("hf", {"config": "llama", "n_inner": 10}, 16 * 40 + 4 * 256 + 30 * 16 + 3 * 16),
        ("x-transformers", {"preset": "attention-only"}, 16 * 42 + 4 * 256 + 2 * 16),
        ("x-transformers", {"preset": "memory"}, 16 * 42 + 4 * 256 + 2 * 16 + 2 * 16 * 16),
    ],
)
def test_options_mean_what_they_say(name: str, options: dict[str, Any], parameters: int) -> None:
    assert sum(p.numel() for p in build(name, options, Shape(20, 2, 20)).parameters()) == parameters


def test_initial_weights_are_those_of_the_package() -> None:
    """Drawn from the same seed with nothing of ours between, they are the same numbers."""
    from_us = build("hf", {"config": "gpt2"}, Shape(20, 2, 20), seed=5).state_dict()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(5)
    plain = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=2, n_embd=16, n_layer=1, n_head=2, n_inner=64))
    assert all(torch.equal(from_us[f"model.{key}"], value) for key, value in plain.state_dict().items())


@pytest.mark.parametrize(("dropout", "noisy"), [(0.0, False), (0.3, True)])
@pytest.mark.parametrize("config", ["gpt2", "llama"])
def test_dropout_is_what_was_asked_for_and_not_the_default_of_a_config(
    config: str, dropout: float, noisy: bool
) -> None:
    shape = Shape(6, 2, 6)
    module, tokens = build("hf", {"config": config, "dropout": dropout}, shape).train(), every_context(shape)
    assert (not torch.equal(module(tokens), module(tokens))) == noisy


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"config": "lama"}, "config=lama is no causal model of transformers; did you mean 'llama'?"),
        ({"config": "whisper"}, "config=whisper has no"),
        ({"config": "mamba", "n_head": 2}, "config=mamba has no n_head"),
        ({"config": "gpt2", "n_expert": 2}, "config=gpt2 has no n_expert"),
    ],
)
def test_a_config_that_cannot_be_had_is_a_sentence(options: dict[str, Any], sentence: str, tmp_path: Any) -> None:
    need("hf")
    with pytest.raises(UsageError, match=sentence.replace("?", r"\?")):
        membench.run("hf", "bigram", M=options, T={"N": 5}, out=tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("hf", {"n_embd": 15, "n_head": 2}, "n_head=2 must divide n_embd=15"),
        ("x-transformers", {"preset": "plain", "memory": 3}, "only preset=memory has some"),
        ("x-transformers", {"preset": "memory", "memory": 0}, "memory=0 does not fit preset=memory"),
        ("x-transformers", {"preset": "attention-only", "mlp": 2}, "mlp=2 does not fit preset=attention-only"),
    ],
)
def test_options_that_contradict_each_other_are_refused_without_the_package(
    name: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        BRIDGES[name].config(**options)


@pytest.mark.parametrize("name", BRIDGES)
@pytest.mark.parametrize("shape", [Shape(20, 2, 20), Shape(7, 3, 11)])
def test_a_budget_is_used_but_not_exceeded(name: str, shape: Shape) -> None:
    architecture = need(name)
    with pytest.raises(BudgetTooSmall) as caught:
        architecture.for_budget(shape, 9)
    least = caught.value.least
    for parameters in (least, 3_000, 10_001):
        built = architecture.build(shape, architecture.for_budget(shape, parameters))
        used = sum(p.numel() for p in built.parameters())
        assert 0.6 * parameters < used <= parameters
        assert parameters != least or used == least


@pytest.mark.parametrize(
    ("name", "options"),
    [("x-transformers", {"preset": "memory"}), ("mamba", {}), ("hf", {"config": "llama", "n_inner": 16})],
)
def test_a_short_training_is_recorded_with_the_version_of_the_package(
    name: str, options: dict[str, Any], tmp_path: Any
) -> None:
    from importlib.metadata import version

    (package,) = need(name).packages
    words: Any = {"protocol": "quick", "P": {"steps": 60}, "seeds": 2, "out": tmp_path, "progress": False}
    results = membench.run(name, "bigram", M=options, T={"N": 5}, **words)
    assert results.summary()["accuracy"].item() > 0.3  # chance is 0.2
    for record in results.records:
        assert record.environment[package] == version(package)
        assert record.trace["notes"] == []  # nothing kept replicas from being trained together


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("membench.interface.declarations.find_spec", lambda name: None)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(("name", "extra"), [("x-transformers", "x-transformers"), ("hf", "hf"), ("mamba", "mamba")])
def test_a_missing_package_is_one_sentence_with_the_line_to_type(name: str, extra: str) -> None:
    with pytest.raises(UsageError, match=rf"'{name}' needs \w+: pip install 'membench\[{extra}\]'$") as caught:
        membench.run(name, "bigram")
    assert caught.value.exit_code == 2
    assert REGISTRY.declared(name).name == name


@pytest.mark.usefixtures("nothing_installed")
def test_all_are_those_that_can_be_built_here() -> None:
    trials = plan(REGISTRY, Request(["all"], ["bigram"], seeds=[0]))
    assert {trial.architecture.name for trial in trials} == set(REGISTRY.architectures) - set(BRIDGES)


@pytest.mark.usefixtures("nothing_installed")
def test_models_lists_what_is_missing() -> None:
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["models"]).output
    assert shown.count("; needs ") == len(BRIDGES)
    assert "needs transformers: pip install 'membench[hf]'" in shown
    one = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["models", "hf"])
    assert one.exit_code == 0
    assert "pip install 'membench[hf]'" in one.output
    assert "n_embd" in one.output


def test_listing_them_imports_none() -> None:
    packages = [package for one in BRIDGES.values() for package in one.packages]
    script = (
        "import sys\nfrom click.testing import CliRunner\nfrom membench.cli import cli\n"
        "assert CliRunner().invoke(cli, ['models']).exit_code == 0\n"
        f"sys.exit(', '.join(name for name in {['torch', *packages]} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
