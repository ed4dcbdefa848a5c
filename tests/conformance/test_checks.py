"""Each check finds the fault that it is for, and nothing else; what is built in passes them all."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import membench
from membench.cli import cli
from membench.conformance.checks import CHECKS
from membench.errors import MembenchError, UsageError
from membench.interface.registry import Registry, Selection
from membench.measure.size import measure_size
from membench.verbs.check import Conformance, subject_of

BUILT_IN = sorted(
    name for name, one in Registry(Selection(built_in_only=True)).architectures.items() if not one.missing
)


class Sound(nn.Module):
    """A mean of embeddings and a hidden layer: nothing is wrong with it."""

    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab, d)
        self.hidden = nn.Linear(length * d, d)
        self.out = nn.Linear(d, answers)

    def features(self, tokens: Tensor) -> Tensor:
        return self.hidden(self.word(tokens).flatten(1)).relu()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.features(tokens))


class AsManyAnswersAsTokens(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, vocab, d)


class EveryPosition(Sound):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens)[:, None].expand(-1, tokens.shape[1], -1)


class Tuple(Sound):
    def forward(self, tokens: Tensor) -> Any:
        return super().forward(tokens), None


class DoubleLogits(Sound):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).double()


class Squeezes(Sound):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).squeeze()


class SeesTheBatch(Sound):
    def forward(self, tokens: Tensor) -> Tensor:
        features = self.features(tokens)
        return self.out(features - features.mean(0))


class Remembers(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.memory = torch.zeros(d)

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.features(tokens)
        logits = self.out(features + self.memory.to(features))
        self.memory = features.detach().mean(0)
        return logits


class CountsItsCalls(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(tokens)


class DrawsFromTheSystem(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        nn.init.constant_(self.out.bias, random.SystemRandom().random())


class NoisyAnswers(Sound):
    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        return logits + torch.randn_like(logits)


class SeedsTorch(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        torch.manual_seed(0)
        super().__init__(vocab, length, answers, d)


class InitialisesLate(Sound):
    started = False

    def forward(self, tokens: Tensor) -> Tensor:
        if not self.started:
            nn.init.orthogonal_(self.out.weight)
            self.started = True
        return super().forward(tokens)


class Lazy(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.out = nn.LazyLinear(answers)


class UnregisteredDraw(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.mixing = torch.randn(d, d)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.features(tokens) @ self.mixing.to(tokens.device))


class PlainList(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.layers = [nn.Linear(d, d)]

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layers[0].to(tokens.device)(self.features(tokens)))


class Unused(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.spare = nn.Linear(d, d)


class Frozen(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.word.weight.requires_grad_(False)


class TiedByMemory(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.gate = nn.Parameter(self.out.bias.data)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * self.gate


class GrowsAsItTrains(Sound):
    def forward(self, tokens: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not hasattr(self, "late"):
            self.late = nn.Parameter(torch.zeros(()))
        return super().forward(tokens)


class StaysBehind(Sound):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + torch.zeros(self.out.out_features)


class NotRegistered(UnregisteredDraw):
    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.features(tokens) @ self.mixing)


class Tied(Sound):
    """One weight in two places, as torch means it to be shared."""

    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.first, self.second = nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.second.weight = self.first.weight

    def features(self, tokens: Tensor) -> Tensor:
        return self.second(self.first(super().features(tokens)).relu())


def failed(conformance: Conformance) -> dict[str, str]:
    return {one.check: one.what for one in conformance.failed}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    conformance = membench.check(Sound)
    assert {one.check: one.outcome for one in conformance.results} == {
        one.name: "not asked" if one.name in ("config", "declaration") else "passed" for one in CHECKS
    }


def test_tied_weights_count_once() -> None:
    subject = subject_of(Tied)
    results = {
        one.name: one(subject).outcome for one in CHECKS if one.name in ("parameters", "state-dict", "gradients")
    }
    assert set(results.values()) == {"passed"}
    assert measure_size(subject.build(), subject.shape).parameters == 11 * 8 + 3 * 8 * 8 + 8 + 8 * 8 + 8 + 8 * 7 + 7


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_built_in_passes(name: str) -> None:
    conformance = membench.check(name)
    assert failed(conformance) == {}
    # A table has one size, and most names of embeddings in transformers are not those of one config.
    advice = {"lookup": ["budget"], "hf": ["parameters"]}
    assert [one.check for one in conformance.advice] == advice.get(name, [])


@pytest.mark.parametrize(
    ("model", "check", "words"),
    [
        (AsManyAnswersAsTokens, "logits", "[24, 11], not [24, 7]"),
        (Tuple, "logits", "returned a tuple"),
        (DoubleLogits, "logits", "its logits are float64"),
        (Squeezes, "batch-size", "for a batch of 1"),
        (SeesTheBatch, "batch-size", "answered differently than in one of 24"),
        (Remembers, "no-state", "it keeps 'memory'"),
        (CountsItsCalls, "no-state", "changes 'calls'"),
        (DrawsFromTheSystem, "seed", "differ in 'out.bias'"),
        (NoisyAnswers, "seed", "asked twice in eval mode"),
        (SeedsTorch, "initialisation", "seeds torch"),
        (InitialisesLate, "initialisation", "changes 'out.weight'"),
        (Lazy, "initialisation", "'out.weight', 'out.bias' has no size"),
        (UnregisteredDraw, "state-dict", "'mixing'"),
        (PlainList, "state-dict", "'layers'"),
        (Unused, "gradients", "'spare.weight', 'spare.bias'"),
        (Frozen, "gradients", "'word.weight' does not train"),
        (TiedByMemory, "parameters", "'out.bias' lies in the memory of 'gate'"),
        (GrowsAsItTrains, "parameters", "changes: 351 built"),
        (StaysBehind, "device", "raised RuntimeError"),
        (NotRegistered, "device", "not registered are 'mixing'"),
    ],
)
def test_a_planted_fault_is_found(model: Callable[..., nn.Module], check: str, words: str) -> None:
    (wanted,) = [one for one in CHECKS if one.name == check]
    result = wanted(subject_of(model))
    assert result.outcome == "failed"
    assert words in result.what
    assert result.why
    assert result.mend


PLUGIN = """
from dataclasses import dataclass

from membench.api import Architecture, hookimpl, option
{imports}

@dataclass(frozen=True)
class Config:
    d: int = option(8, help="width"{range})


def build(shape, config):
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(shape.vocab, config.d)
            self.out = nn.Linear(config.d, shape.answers)

        def forward(self, tokens):
            return self.out(self.word(tokens).mean(1))

    return Model()


@hookimpl
def membench_architectures():
    return [Architecture(name="bag", summary="s", reference="r", config=Config, build=build{more})]
"""


def check_plugin(tmp_path: Path, imports: str = "", range: str = ", minimum=1", more: str = "") -> Conformance:
    path = tmp_path / "bag_plugin.py"
    path.write_text(PLUGIN.format(imports=imports, range=range, more=more), encoding="utf-8")
    return membench.check("bag", plugins=[path])


def test_answers_at_every_position_are_none() -> None:
    """The last of them are measured."""
    assert {one.outcome for one in membench.check(EveryPosition).results} <= {"passed", "advice", "not asked"}


def test_a_sound_declaration_passes(tmp_path: Path) -> None:
    assert {one.outcome for one in check_plugin(tmp_path, more=", embeddings=('word',)").results} == {"passed"}


def test_a_declaration_that_imports_torch_is_found(tmp_path: Path) -> None:
    found = failed(check_plugin(tmp_path, imports="import torch"))
    assert found == {"declaration": "its declaration imports torch (bag_plugin.py, line 5)"}


def test_an_option_that_takes_what_cannot_be_built_is_found(tmp_path: Path) -> None:
    found = failed(check_plugin(tmp_path, range=""))
    assert list(found) == ["config"]
    assert found["config"].startswith("d=-1 is accepted, and then the model fails: RuntimeError")


def test_a_prefix_of_embeddings_that_matches_nothing_is_found(tmp_path: Path) -> None:
    found = failed(check_plugin(tmp_path, more=", embeddings=('wort',)"))
    assert found == {"parameters": "embeddings='wort' names no parameter"}


def test_a_table_that_only_other_options_have_is_advice(tmp_path: Path) -> None:
    results = check_plugin(tmp_path, more=", embeddings=('word', 'wort')").results
    (advice,) = [one for one in results if one.outcome != "passed"]
    assert (advice.check, advice.outcome) == ("parameters", "advice")
    assert advice.what == "embeddings='wort' names no parameter with these options"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("Config(d=1000)", "for_budget of bag returned a config with 18,007 parameters"),
        ("None", "for_budget of bag returned a NoneType, not a Config"),
    ],
)
def test_a_budget_that_is_not_kept_is_found(tmp_path: Path, choice: str, words: str) -> None:
    found = failed(check_plugin(tmp_path, more=f", for_budget=lambda shape, parameters: {choice}"))
    assert list(found) == ["budget"]
    assert words in found["budget"]


class WithDropout(Sound):
    def __init__(self, vocab: int, length: int, answers: int, d: int = 8) -> None:
        super().__init__(vocab, length, answers, d)
        self.drop = nn.Dropout(0.5)

    def features(self, tokens: Tensor) -> Tensor:
        return self.drop(super().features(tokens))


class FixedSize(nn.Module):
    def __init__(self, vocab: int, length: int, answers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, answers)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens).mean(1)


def test_what_costs_time_alone_is_advice() -> None:
    dropout, fixed = membench.check(WithDropout), membench.check(FixedSize)
    assert failed(dropout) == failed(fixed) == {}
    (advice,) = dropout.advice
    assert advice.what.startswith("settings are trained one by one: 'drop' is dropout")
    assert "ms for one setting" in advice.what
    assert "0 by default" in advice.mend
    assert [one.check for one in fixed.advice] == ["budget"]


MODULE = """
from torch import nn

class MyModel(nn.Module):
    def __init__(self, vocab: int, answers: int, d: int{default}):
        super().__init__()
        self.word, self.out = nn.Embedding(vocab, d), nn.Linear(d, answers)

    def forward(self, tokens):
        return self.out(self.word(tokens).mean(1))

class NeedsAThing(nn.Module):
    def __init__(self, vocab, thing):
        super().__init__()
"""


def test_a_class_in_a_file_is_checked(tmp_path: Path) -> None:
    (tmp_path / "my_layer.py").write_text(MODULE.format(default=""))
    conformance = membench.check(f"{tmp_path}/my_layer.py:MyModel", M={"d": 4})
    outcomes = [one.outcome for one in conformance.results]
    assert (outcomes.count("passed"), outcomes.count("not asked")) == (11, 2)


def test_the_command_says_what_why_and_how_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(PLUGIN.format(imports="import torch", range="", more=""))
    words = ["check", "bag", "--plugin", str(tmp_path / "bad.py")]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 1
    for part in ("declaration: its declaration imports torch (bad.py, line 5)", "why it matters:", "how to fix it:"):
        assert part in shown.stdout
    data = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert data["passed"] is False
    assert {one["check"] for one in data["results"] if one["outcome"] == "failed"} == {"declaration", "config"}
    assert all(one["mend"] for one in data["results"] if one["outcome"] == "failed")


def test_the_example_of_the_documentation_is_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extend.md").read_text("utf-8")
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "class MyModel" in code]
    (tmp_path / "my_layer.py").write_text(f"import torch\nfrom torch import nn\n\n\n{code}", encoding="utf-8")
    shown = CliRunner().invoke(cli, ["check", f"{tmp_path}/my_layer.py:MyModel"])
    printed = shown.stdout[shown.stdout.index("state-dict: ") :].splitlines()
    assert [line for line in printed if "a step takes" not in line] == [
        line for line in page[page.index("state-dict: ") :].split("```")[0].splitlines() if "a step takes" not in line
    ]
    assert all(f"| {one.name} | {one.expected} |" in page.replace("`", "") for one in CHECKS)


def test_the_command_ends_with_0_where_nothing_is_wrong() -> None:
    shown = CliRunner().invoke(cli, ["check", "lookup"])
    assert shown.exit_code == 0
    assert "12 passed, 0 failed, 1 with advice" in shown.stdout


@pytest.mark.parametrize(
    ("model", "options", "code", "sentence"),
    [
        ("aott", (), 2, "did you mean 'aot'?"),
        ("nowhere.py:MyModel", (), 2, "nowhere.py' does not exist"),
        ("my_layer.py:MyModell", (), 2, "did you mean 'MyModel'?"),
        ("my_layer.py:NeedsAThing", (), 2, "needs 'thing', and its type is not known"),
        ("my_layer.py:MyModel", (), 2, "option 'd' has no default; set it with d=VALUE"),
        ("my_layer.py:MyModel", ("d=4,5",), 2, "check takes single values"),
        ("my_layer.py:MyModel", ("e=4",), 2, "unknown option of MyModel 'e'"),
        ("broken", (), 3, "ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_checked_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, options: tuple[str, ...], code: int, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_layer.py").write_text(MODULE.format(default=""))
    Path("broken.py").write_text("import no_such_module_at_all")
    with pytest.raises(MembenchError) as error:
        membench.check(model, M=options, plugins=["broken.py"] if model == "broken" else ())
    assert sentence in str(error.value)
    assert error.value.exit_code == code


FATAL = """
import os, time
from torch import nn

if os.environ.get("END_AT_IMPORT"):
    os._exit(3)


class Model(nn.Module):
    def __init__(self, vocab: int, answers: int, fault: str = "exit"):
        super().__init__()
        self.word, self.out, self.fault = nn.Embedding(vocab, 4), nn.Linear(4, answers), fault

    def forward(self, tokens):
        if self.training:
            print("asked while training, with fault", self.fault)
            while self.fault == "hang":
                time.sleep(1)
            held = []
            while self.fault == "eat":
                held.append(bytearray(64 << 20))
            os._exit(1)
        return self.out(self.word(tokens).mean(1))
"""


@pytest.fixture
def fatal(tmp_path: Path) -> str:
    path = tmp_path / "fatal.py"
    path.write_text(FATAL, encoding="utf-8")
    return f"{path}:Model"


@pytest.mark.parametrize(
    ("fault", "limits", "words"),
    [
        ("exit", {}, "its process ended with code 1"),
        ("hang", {"timeout": 3}, "stopped after 3 s: --timeout allows 3 s"),
        ("eat", {"memory": "1G"}, "bytes of memory: --memory allows 1,073,741,824"),
    ],
)
def test_a_model_that_takes_its_process_along_is_a_finding(
    fatal: str, fault: str, limits: dict[str, Any], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found = membench.check(fatal, M={"fault": fault}, **limits)
    (failed,) = found.failed
    assert failed.check == "logits"
    assert failed.what.startswith("it did not come to its end: ")
    assert failed.what.endswith(words)
    assert [one.check for one in found.results] == [one.name for one in CHECKS]
    assert {one.what for one in found.results[1:]} == {"'logits' did not come to its end"}
    assert f"asked while training, with fault {fault}\n" in capfd.readouterr().err


def test_what_was_checked_before_it_died_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "fatal.py"
    path.write_text(FATAL.replace("if self.training:", "if len(tokens) == 1:"), encoding="utf-8")
    found = membench.check(f"{path}:Model")
    assert [(one.check, one.outcome) for one in found.results[:3]] == [
        ("logits", "passed"), ("batch-size", "failed"), ("no-state", "not asked")
    ]  # fmt: skip


def test_a_file_that_ends_the_process_that_imports_it_is_said(fatal: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "membench", "check", fatal]
    environment = {**os.environ, "END_AT_IMPORT": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 3
    assert done.stderr == "membench: the model could not be loaded: its process ended with code 3\n"


def test_limits_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="timeout 0: give a number of seconds above 0"):
        membench.check("aot", timeout=0)
    with pytest.raises(UsageError, match="give at least 512M"):
        membench.check("aot", memory="1M")
