from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from membench.errors import PluginError, UsageError
from membench.interface.adapt import architecture_of
from membench.interface.facts import Shape
from membench.interface.options import expand, options_of
from membench.interface.registry import Registry, Selection

LAYER = """
from torch import nn


class Bag(nn.Module):
    \"\"\"A bag of tokens.\"\"\"

    def __init__(self, vocab, length, answers, width: int = 32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.out = nn.Linear(width, answers)

    def forward(self, tokens):
        return self.out(self.embed(tokens).sum(1))
"""


class Bag(nn.Module):
    """A bag of tokens.

    And nothing else.
    """

    def __init__(
        self,
        vocab: int,
        answers: int,
        width: int = 32,
        depth=2,
        bias: bool = True,
        act=nn.ReLU,
        rank: int | None = None,
    ) -> None:
        super().__init__()
        self.made = (vocab, answers, width, depth, bias, act, rank)


def shape() -> Shape:
    return Shape(vocab=7, length=2, answers=7)


def test_options_are_what_the_signature_says() -> None:
    architecture = architecture_of(Bag)
    assert (architecture.name, architecture.summary) == ("Bag", "A bag of tokens.")
    known = {name: (one.kind, one.default) for name, one in options_of(architecture.config).items()}
    assert known == {"width": (int, 32), "depth": (int, 2), "bias": (bool, True), "rank": (int, None)}
    (config,) = expand(architecture.config, {"width": "8", "bias": "false", "rank": "3"}, "Bag", "")
    assert architecture.build(shape(), config).made == (7, 7, 8, 2, False, nn.ReLU, 3)


def test_a_function_is_as_good_as_a_class() -> None:
    def model(vocab: int, answers: int, *, d: float = 0.5) -> Any:
        return ("made", vocab, answers, d)

    architecture = architecture_of(model)
    assert architecture.name == "model"
    assert architecture.build(shape(), architecture.config()) == ("made", 7, 7, 0.5)


def test_an_option_without_a_default_has_to_be_given() -> None:
    def model(vocab: int, width: int) -> Any:
        return vocab, width

    with pytest.raises(UsageError, match="option 'width' has no default"):
        expand(architecture_of(model).config, {}, "model", "")


def _no_dimension(width: int = 3) -> Any:
    return width


def _no_type(vocab: int, layer) -> Any:  # type: ignore[no-untyped-def]
    return layer


@pytest.mark.parametrize(
    ("target", "words"),
    [(_no_dimension, "takes none of vocab"), (_no_type, "needs 'layer', and its type is not known")],
)
def test_what_cannot_be_an_architecture_says_why(target: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        architecture_of(target)


def test_the_code_of_a_class_is_known_by_what_it_does_and_not_by_where_it_stands() -> None:
    def define(text: str) -> Any:
        space: dict[str, Any] = {"__name__": "cell"}
        exec(compile(text, "<cell>", "exec"), space)
        return architecture_of(space["Bag"]).origin.code_sha256

    once = define(LAYER)
    assert once == define("\n\n# the same further down\n" + LAYER)
    assert once != define(LAYER.replace("sum(1)", "mean(1)"))
    assert once != define(LAYER.replace("sum(1)", "sum(0)"))


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    path = tmp_path / "layer.py"
    path.write_text(LAYER)
    return path


def test_a_class_in_a_file_is_an_architecture_and_workers_can_load_it_too(layer: Path) -> None:
    registry = Registry()
    architecture = registry.architecture(f"{layer}:Bag")
    assert architecture.name == "Bag"
    assert registry.architecture(f"{layer}:Bag") is architecture
    again = Registry(registry.selection).architecture("Bag")  # as a worker does, by the name in a point
    assert again.origin == architecture.origin
    assert [field.name for field in dataclasses.fields(again.config)] == ["width"]


def test_a_file_that_was_edited_is_other_code(layer: Path) -> None:
    before = Registry().architecture(f"{layer}:Bag").origin
    layer.write_text(LAYER + "\n# changed\n")
    assert Registry().architecture(f"{layer}:Bag").origin != before


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("{file}:Bug", UsageError, "unknown class 'Bug'; did you mean 'Bag'"),
        ("{folder}/no.py:Bag", UsageError, "no.py' does not exist"),
        ("{folder}/no.py", UsageError, "no.py' does not exist"),
        ("layer:Bag", UsageError, "unknown architecture 'layer:Bag'; .*a class in a file is path.py:Class"),
        ("{file}", UsageError, "layer.py' is a file; say which class in it: [^,]*layer.py:Bag, [^,]*layer.py:Twice$"),
        ("{folder}/taken.py", UsageError, "taken.py:lookup$"),
        ("{folder}/empty.py", UsageError, "empty.py' has no class"),
        ("{folder}/broken.py", UsageError, "cannot be read as Python: SyntaxError"),
        ("{folder}/plugin.py", UsageError, "is a plugin: give it as --plugin .*plugin.py"),
        ("{folder}/broken.py:Bag", PluginError, r"SyntaxError: .*\(broken.py, line 1\)$"),
        ("{folder}/typo.py:Bag", PluginError, r"NameError: name 'tensor' is not defined \(typo_parts.py, line 2\)$"),
        ("{folder}/taken.py:lookup", UsageError, "the name 'lookup' is taken by membench"),
    ],
)
def test_a_target_that_is_not_there_says_what_is(layer: Path, target: str, error: type, words: str) -> None:
    layer.write_text(LAYER + "\n\nclass Twice(Bag):\n    pass\n\n\nclass _Part(nn.Module):\n    pass\n")
    (layer.parent / "broken.py").write_text("class Bag(:")
    (layer.parent / "typo.py").write_text("import typo_parts\n")
    if "typo" in target:  # the folders of other cases are on the path too
        (layer.parent / "typo_parts.py").write_text("def make():\n    return tensor\n\n\nmake()\n")
    (layer.parent / "empty.py").write_text("raise SystemExit('not to be run')\n")
    (layer.parent / "plugin.py").write_text("@hookimpl\ndef membench_architectures():\n    return []\n")
    (layer.parent / "taken.py").write_text("def lookup(vocab):\n    return vocab\n")
    with pytest.raises(error, match=words):
        Registry().architecture(target.format(file=layer, folder=layer.parent))


def test_a_class_of_this_process_can_be_defined_again(layer: Path) -> None:
    registry = Registry(Selection())
    first, second = architecture_of(Bag), architecture_of(Bag)
    registry.add(first)
    registry.add(second)
    assert registry.architecture("Bag") is second
    with pytest.raises(UsageError, match="the name 'aot' is taken by membench"):
        registry.add(architecture_of(Bag, "aot"))
