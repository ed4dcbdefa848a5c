from __future__ import annotations

from pathlib import Path

import pytest

from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.measure.metrics import GATED
from membench.regress.exact_tests import seeds_needed
from membench.regress.suite import load_suite, parse_suite, plan_suite, shipped

REGISTRY = Registry()
TRIAL = """
[[trial]]
model = "aot"
task = "bigram"
watch = { accuracy = 0.02 }
"""
SUITE = 'name = "small"\nversion = 3\nseeds = 8\n' + TRIAL


def test_a_suite_says_what_to_run_and_what_to_watch() -> None:
    text = SUITE + 'protocol = "quick"\nM = { aot = { d = 4, scale = false }, H = 2 }\nT = { N = 5 }\nP = { lr = 0.1 }'
    suite = parse_suite(text, "small.toml")
    assert (suite.name, suite.version, suite.seeds) == ("small", 3, 8)
    plan = plan_suite(REGISTRY, suite)
    assert [trial.seed for trial in plan.trials] == list(range(8))
    one = plan.trials[0]
    assert (one.config.d, one.config.H, one.config.scale) == (4, 2, False)
    assert (one.task_config.N, one.protocol_config.lr) == (5, 0.1)
    assert plan.watch == {one.id: {"accuracy": 0.02}}


@pytest.mark.parametrize("name", shipped())
def test_shipped_suites_fit_every_built_in_architecture_but_bridges_and_have_seeds_enough(name: str) -> None:
    own = {name for name, one in REGISTRY.architectures.items() if not one.packages}
    suite = load_suite(name)
    plan = plan_suite(REGISTRY, suite)
    assert suite.name == name
    assert suite.seeds >= seeds_needed(plan.comparisons)
    assert {trial.architecture.name for trial in plan.trials} == own
    assert "construct" in {trial.protocol.name for trial in plan.trials}
    watched = {metric for metrics in plan.watch.values() for metric in metrics}
    assert watched == {"accuracy", "kl", "bits_per_parameter"} <= set(GATED)


def test_some_architectures_of_a_suite_can_be_chosen() -> None:
    plan = plan_suite(REGISTRY, load_suite("smoke"), ["lookup"], range(2))
    assert {trial.architecture.name for trial in plan.trials} == {"lookup"}
    assert {trial.protocol.name for trial in plan.trials} == {"quick"}  # it has no construction
    with pytest.raises(UsageError, match="did you mean 'lookup'"):
        plan_suite(REGISTRY, load_suite("smoke"), ["lokup"])
    with pytest.raises(UsageError, match="no trial for lookup"):
        plan_suite(REGISTRY, parse_suite(SUITE, "small.toml"), ["lookup"])


def test_the_same_point_in_two_trials_is_run_once_and_watched_for_both() -> None:
    plan = plan_suite(REGISTRY, parse_suite(SUITE + TRIAL.replace("accuracy", "kl"), "s"))
    assert len(plan.trials) == 8
    assert list(plan.watch.values()) == [{"accuracy": 0.02, "kl": 0.02}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"'name' is missing; it is a text"),
        ("name = ", "is not TOML"),
        (SUITE.replace("seeds", "seed"), "'seeds' is missing; .* did you mean"),
        (SUITE.replace("seeds = 8", ""), "'seeds' is missing"),
        (SUITE.replace("version = 3", 'version = "3"'), "'version' is '3'; it must be a whole number of at least 1"),
        (SUITE.replace("version = 3", "version = true"), "'version' is True; it must be a whole number"),
        (SUITE.replace("version = 3", "version = 0"), "'version' is 0; it must be a whole number of at least 1"),
        (SUITE.replace("task =", "tsak ="), r"\[\[trial\]\] 1: 'task' is missing; .* did you mean"),
        (SUITE + "protcol = 'quick'", r"\[\[trial\]\] 1: 'protcol'; did you mean 'protocol'"),
        (SUITE.replace('"bigram"', "3"), "'task' is 3; it must be a text"),
        (SUITE.replace('"aot"', "[]"), "'model' is missing; give a name"),
        (SUITE.replace("accuracy", "acuracy"), "watch: unknown metric 'acuracy'; did you mean 'accuracy'"),
        (SUITE.replace("0.02", "0"), r"watch.accuracy=0.0: the smallest loss that counts is a number above 0"),
        (SUITE.replace("0.02", "'much'"), "'watch.accuracy' is 'much'; it must be a number"),
        (SUITE.replace("accuracy = 0.02", ""), "watch is empty"),
        (SUITE + "M = { H = [] }", r"'M.H' is \[\], an empty grid"),
        ('name = "s"\nversion = 1\nseeds = 2\ntrial = [3]', r"give one or more \[\[trial\]\] tables"),
        ('name = "s"\nversion = 1\nseeds = 2\ntrial = []', r"'trial' is empty; give one or more"),
    ],
)
def test_mistakes_in_a_suite_are_named_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_suite(text, "s.toml")
    assert "'s.toml'" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("aot", "atoo"), "suite 's', trial 1: unknown architecture 'atoo'; did you mean 'aot'"),
        (("bigram", "bigrm"), "suite 's', trial 1: unknown task 'bigrm'; did you mean 'bigram'"),
        (("0.02 }", '0.02 }\nM = { "aot.K" = 2 }'), "suite 's', trial 1: unknown option of aot 'K'"),
        (("0.02 }", '0.02 }\nprotocol = "quik"'), "suite 's', trial 1: unknown protocol 'quik'; did you mean 'quick'"),
    ],
)
def test_names_that_do_not_exist_are_found_before_anything_runs(change: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_suite(REGISTRY, parse_suite(SUITE.replace(*change), "s"))


def test_a_suite_is_found_by_name_or_path(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(SUITE, encoding="utf-8")
    assert load_suite(str(tmp_path / "own.toml")).name == "small"
    with pytest.raises(UsageError, match="unknown suite 'smok'; did you mean 'smoke'"):
        load_suite("smok")
    with pytest.raises(UsageError, match=r"cannot read suite '.*none\.toml': No such file"):
        load_suite(str(tmp_path / "none.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot read suite"):
        load_suite(str(tmp_path / "binary.toml"))
