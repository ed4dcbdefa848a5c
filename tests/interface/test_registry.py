from __future__ import annotations

import dataclasses
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from membench.api import Architecture, Bound, hookimpl
from membench.errors import PluginError, UsageError
from membench.interface import registry as registry_module
from membench.interface.origin import Origin, files_of, origin_of_file
from membench.interface.registry import Plugin, Registry, Selection
from membench.plan.request import Request, plan
from membench.printing import plugin_speaks


class Distribution:
    """As much of a distribution as the registry looks at."""

    def __init__(self, name: str, version: str, direct_url: str | None = None) -> None:
        self.name, self.version, self.direct_url = name, version, direct_url

    def read_text(self, name: str) -> str | None:
        return self.direct_url if name == "direct_url.json" else None


class Entry:
    def __init__(self, name: str, load: Any, distribution: Distribution) -> None:
        self.name, self.load, self.dist, self.module = name, load, distribution, "third_party"


def architecture(name: str, config: type | None = None) -> Architecture[Any]:
    from membench_lookup import membench_architectures

    (lookup,) = membench_architectures()
    return Architecture(name=name, summary="", reference="", config=config or lookup.config, build=lookup.build)


def bringing(*items: Any) -> Any:
    """A loader of a plugin module that brings these architectures."""
    module = types.ModuleType("third_party")
    module.membench_architectures = hookimpl(lambda: list(items), specname="membench_architectures")  # type: ignore[attr-defined]
    return lambda: module


def changed(**fields: Any) -> Architecture[Any]:
    return dataclasses.replace(architecture("x"), **fields)


def bounding(**fields: Any) -> Any:
    """A plugin with one bound."""
    right = {"quantity": "accuracy", "direction": "upper", "value": lambda setting: 1.0}
    one = Bound(name="b", summary="b", formula="b", reference="b", **{**right, **fields})
    module = types.ModuleType("third_party")
    module.bounds = hookimpl(lambda: [one], specname="membench_bounds")  # type: ignore[attr-defined]
    return lambda: module


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs third-party entry points beside the built-in ones."""

    def do(*entries: Entry) -> None:
        real = registry_module.entry_points
        monkeypatch.setattr(registry_module, "entry_points", lambda group: [*real(group=group), *entries])

    return do


def row(registry: Registry, name: str) -> Plugin:
    return next(plugin for plugin in registry.plugins if plugin.name == name)


def raising(error: BaseException) -> Any:
    def load() -> None:
        raise error

    return load


THIRD = Distribution("third", "1.2")


def test_built_ins_come_through_the_entry_points() -> None:
    registry = Registry()
    assert {plugin.status for plugin in registry.plugins} == {"loaded"}
    assert set(registry.architectures) == {
        "aot", "mlp-transformer", "linear-memory", "attention-mlp", "sequence-encoder", "lookup", "pair-mlp",
        "mlp-memory", "moe", "product-key", "hashed-ngram", "hopfield",
        "lstm", "gru", "transformer-encoder", "x-transformers", "hf", "mamba",
    }  # fmt: skip
    assert set(registry.tasks) == {
        "bigram", "ngram", "low-entropy", "geometric", "almost-low-rank", "recall", "facts", "world", "text",
    }  # fmt: skip
    assert {"chance", "zero-head", "bayes"} <= {bound.name for bound in registry.bounds}


def test_a_third_party_is_named_with_its_distribution(install: Any) -> None:
    commit = '{"url": "x", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}'
    install(Entry("mine", bringing(architecture("mine")), Distribution("mine-plugin", "3.1", commit)))
    registry = Registry()
    origin = registry.architecture("mine").origin
    assert (str(origin), origin.commit) == ("mine-plugin 3.1", "abc123")


class NotFrozen:
    pass


def _mistyped() -> Any:
    def architectures() -> list[Any]:
        return []

    module = types.ModuleType("third_party")
    module.membench_architecture = hookimpl(architectures, specname="membench_architecture")  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (raising(ImportError("no module named left_pad")), "ImportError: no module named left_pad"),
        (raising(SystemExit(3)), "SystemExit: 3"),
        (_mistyped, "unknown hook 'membench_architecture'"),
        (lambda: types.ModuleType("empty"), "no function is marked with @hookimpl"),
        (bringing("a string"), "returned 'a string', not a membench.api.Architecture"),
        (bringing(architecture("bad name")), "'bad name'; a name is at most 100 letters"),
        (bringing(architecture("../up")), "a name is at most 100 letters"),
        (bringing(architecture("x" * 300)), "xxx..; a name is at most 100 letters"),
        (bringing(changed(build="no")), "build of 'x' is 'no', not a function"),
        (bringing(changed(for_budget=3000)), "for_budget of 'x' is 3000, not a function"),
        (
            bringing(changed(embeddings="word.")),
            "embeddings of 'x' are 'word.'; they are a tuple of names",
        ),
        (bringing(changed(version="1")), "the version of 'x' is '1'; it is a whole number"),
        (bounding(quantity="accuray"), "quantity of bound 'b' is 'accuray'; it is one of accuracy, associations"),
        (bounding(direction="up"), "direction of bound 'b' is 'up'; it is one of lower, upper, reference, order"),
        (bounding(value=0.5), "value of 'b' is 0.5, not a function"),
        (EntryPoint("gone", "a_module_that_is_not_there:x", "membench").load, "No module named 'a_module_that"),
        (EntryPoint("gone", "membench.api:not_there", "membench").load, "has no attribute 'not_there'"),
        (bringing(architecture("x", NotFrozen)), "must be a frozen dataclass"),
        (bringing(architecture("x"), architecture("x")), "returned 'x' twice"),
    ],
)
def test_a_broken_plugin_costs_its_own_row(install: Any, load: Any, reason: str) -> None:
    install(Entry("broken", load, THIRD), Entry("fine", bringing(architecture("fine")), Distribution("other", "1")))
    registry = Registry()
    assert row(registry, "broken").status == "failed"
    assert reason in row(registry, "broken").reason
    assert row(registry, "broken").origin == Origin("third", "1.2")
    assert {"aot", "fine"} <= set(registry.architectures)
    with pytest.raises(PluginError, match=r"'broken' is not available: plugin broken \(third 1.2\) is failed"):
        registry.architecture("broken")


def test_strict_mode_raises_what_the_plugin_raises(install: Any) -> None:
    install(Entry("broken", raising(ImportError("gone")), THIRD))
    with pytest.raises(ImportError, match="gone"):
        Registry(Selection(strict=True))


def test_a_built_in_keeps_its_name(install: Any) -> None:
    install(Entry("thief", bringing(architecture("aot")), THIRD))
    registry = Registry()
    assert registry.architecture("aot").origin.distribution == "membench"
    assert "'aot' is provided by aot (membench" in row(registry, "thief").reason
    assert "third 1.2" in row(registry, "thief").reason


def test_a_name_from_two_third_parties_is_nobodys_until_one_is_blocked(install: Any) -> None:
    install(
        Entry("one", bringing(architecture("same")), Distribution("first", "1")),
        Entry("two", bringing(architecture("same")), Distribution("second", "2")),
    )
    with pytest.raises(PluginError, match=r"one \(first 1\) and two \(second 2\)"):
        Registry().architecture("same")
    registry = Registry(Selection(blocked=("two",)))
    assert registry.architecture("same").origin.distribution == "first"


def test_blocking_and_allowing_know_plugins_and_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "aot" not in Registry(Selection(blocked=("aot",))).architectures
    assert Registry(Selection(blocked=("membench",))).architectures == {}
    monkeypatch.setenv("MEMBENCH_PLUGINS", "lookup, tasks")
    registry = Registry(Selection.from_environment())
    assert set(registry.architectures) == {"lookup"}
    assert "bigram" in registry.tasks
    assert row(registry, "aot").reason == "not among MEMBENCH_PLUGINS"
    with pytest.raises(PluginError, match="'aot' is not available"):
        registry.architecture("aot")


def test_blocking_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="did you mean 'lookup'"):
        Registry(Selection(blocked=("lokup",)))


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown architecture 'aott'; did you mean 'aot'.*membench models"):
        Registry().architecture("aott")
    with pytest.raises(UsageError, match=r"unknown task 'bigrams'; did you mean 'bigram'.*membench tasks"):
        Registry().task("bigrams")


def test_a_plugin_can_be_a_file(plugin_file: Path) -> None:
    registry = Registry(Selection.from_environment(files=[str(plugin_file)]))
    assert registry.architecture("toy").origin.distribution == str(plugin_file)
    with pytest.raises(UsageError, match="does not exist"):
        Registry(Selection(files=("nowhere.py",)))


def test_what_a_plugin_prints_while_loading_stays_off_stdout(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def load() -> Any:
        print("hello from a plugin")
        return bringing(architecture("chatty"))()

    install(Entry("chatty", load, THIRD))
    Registry()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hello" in captured.err


def test_a_terminal_does_not_act_on_what_a_plugin_prints_while_loading(
    install: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def load() -> Any:
        print("\x1b[31mred\x07")
        print("\x9b2J", file=sys.stderr)
        return bringing(architecture("colourful"))()

    install(Entry("colourful", load, THIRD))
    Registry()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "\ufffd[31mred\ufffd\n\ufffd2J\n")


def test_loading_in_threads_leaves_the_streams_as_they_were(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    both = threading.Barrier(2)

    def load() -> Any:
        both.wait(60)  # both threads are in the midst of it
        print("from a plugin")
        both.wait(60)
        return bringing(architecture("slow"))()

    install(Entry("slow", load, THIRD))
    streams = sys.stdout, sys.stderr
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(Registry) for _ in range(2)]
        assert all("slow" in one.result().architectures for one in made)
    assert (sys.stdout, sys.stderr) == streams
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("from a plugin")) == ("", 2)


def test_other_threads_print_where_they_did(capsys: pytest.CaptureFixture[str]) -> None:
    with plugin_speaks():
        other = threading.Thread(target=print, args=("mine",))
        other.start()
        other.join()
        print("a plugin's")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("mine\n", "a plugin's\n")


def test_entry_point_objects_are_what_the_registry_expects() -> None:
    # Entry above stands in for importlib.metadata.EntryPoint: this fails if the real one loses what we use.
    assert all(hasattr(EntryPoint, name) for name in ("load", "dist"))


def test_a_plugin_file_can_import_its_neighbours_which_are_part_of_its_code(tmp_path: Path, plugin_file: Path) -> None:
    (tmp_path / "beside.py").write_text("from further.away import WIDTH\n", encoding="utf-8")
    (tmp_path / "further").mkdir()
    (tmp_path / "further" / "__init__.py").touch()
    (tmp_path / "further" / "away.py").write_text("WIDTH = 8\n", encoding="utf-8")
    (tmp_path / "unrelated.py").write_text("1 / 0\n", encoding="utf-8")
    alone = Registry(Selection(files=(str(plugin_file),))).architecture("toy").origin.code_sha256
    plugin_file.write_text(f"from beside import WIDTH\n{plugin_file.read_text('utf-8')}", encoding="utf-8")
    found = [origin_of_file(plugin_file).code_sha256]
    assert "toy" in Registry(Selection(files=(str(plugin_file),))).architectures
    (tmp_path / "unrelated.py").write_text("2 / 0\n", encoding="utf-8")
    assert origin_of_file(plugin_file).code_sha256 == found[0]
    (tmp_path / "further" / "away.py").write_text("WIDTH = 9\n", encoding="utf-8")
    assert len({alone, found[0], origin_of_file(plugin_file).code_sha256}) == 3


LAYERS = """
from torch import nn

class Needs(nn.Module):
    def __init__(self, vocab, length, answers, something):
        super().__init__()

class Options(nn.Module):
    def __init__(self, vocab, length, answers, width: int):
        super().__init__()

class lookup(nn.Module):
    def __init__(self, vocab, answers):
        super().__init__()

class NoTask(nn.Module):
    pass
"""


def test_an_import_with_a_name_too_long_for_a_file_is_of_no_neighbour(plugin_file: Path) -> None:
    plugin_file.write_text(f"def build():\n    import {'x' * 5000}\n")
    assert files_of(plugin_file) == [plugin_file]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.py:Needs", "plugin file '.*nowhere.py' does not exist"),
        ("layers.py:Option", "unknown class 'Option'; did you mean 'Options'"),
        ("layers.py:Needs", "'Needs' needs 'something', and its type is not known: annotate it"),
        ("layers.py:NoTask", "takes none of vocab, length, answers"),
        ("layers.py:lookup", "the name 'lookup' is taken by membench .*; rename the class"),
        ("layers.py:" + "x" * 300, "unknown class 'x"),
    ],
)
def test_a_class_that_cannot_be_used_gives_one_sentence(tmp_path: Path, target: str, words: str) -> None:
    (tmp_path / "layers.py").write_text(LAYERS, encoding="utf-8")
    with pytest.raises(UsageError, match=words) as caught:
        Registry().architecture(str(tmp_path / target))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_options_without_defaults_have_to_be_given(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS, encoding="utf-8")
    target = f"{tmp_path / 'layers.py'}:Options"
    with pytest.raises(UsageError, match="Options: option 'width' has no default; set it with width=VALUE"):
        plan(Registry(), Request([target], ["bigram"], seeds=(0,)))
    (trial,) = plan(Registry(), Request([target], ["bigram"], ["width=3"], seeds=(0,)))
    assert trial.config.width == 3
