"""What holds for every built-in task."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import membench_tasks
from membench.api import Task
from membench.errors import UsageError
from membench.interface.facts import draw_facts
from membench.interface.options import expand, options_of, validate

TASKS: dict[str, Task[Any]] = {task.name: task for task in membench_tasks.membench_tasks()}

# Those whose contexts, answers and prior are all random, and have the same options.
RANDOM = {name: TASKS[name] for name in ("bigram", "ngram", "low-entropy", "geometric", "almost-low-rank")}

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
every_random_task = pytest.mark.parametrize("task", RANDOM.values(), ids=RANDOM.keys())


def test_the_hook_brings_the_nine_tasks() -> None:
    assert list(TASKS) == [*RANDOM, "recall", "facts", "world", "text"]


def test_listing_the_tasks_does_not_import_torch() -> None:
    code = "import sys, membench_tasks as m; m.membench_tasks(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@every_task
def test_the_module_documents_the_version_that_it_declares(task: Task[Any]) -> None:
    documentation = sys.modules[task.sample.__module__].__doc__
    assert documentation is not None
    assert documentation.startswith(f"`{task.name}`, version {task.version}: ")


@every_task
def test_every_option_has_a_help_text_and_defaults_are_valid(task: Task[Any]) -> None:
    assert all(one.help for one in options_of(task.config).values())
    validate(task.config(), task.name)


@every_random_task
def test_the_same_seed_gives_the_same_facts_and_another_seed_others(task: Task[Any]) -> None:
    config = task.config()
    assert draw_facts(task, config, 7).sha256() == draw_facts(task, config, 7).sha256()
    assert draw_facts(task, config, 7).sha256() != draw_facts(task, config, 8).sha256()


@every_random_task
def test_global_generators_are_neither_read_nor_moved(task: Task[Any]) -> None:
    digests = set()
    for seed in (0, 1):
        np.random.seed(seed)
        torch.manual_seed(seed)
        numpy_state, torch_state = str(np.random.get_state()), torch.get_rng_state()
        digests.add(draw_facts(task, task.config(zipf=1.0), 0).sha256())
        assert str(np.random.get_state()) == numpy_state
        assert torch.equal(torch.get_rng_state(), torch_state)
    assert len(digests) == 1


@every_random_task
def test_the_prior_is_drawn_last_so_that_it_alone_follows_the_exponent(task: Task[Any]) -> None:
    uniform, skewed = (draw_facts(task, task.config(zipf=s), 0) for s in (0.0, 1.0))
    assert np.array_equal(uniform.inputs, skewed.inputs)
    assert np.array_equal(uniform.targets, skewed.targets)
    assert np.array_equal(uniform.prior, np.full(len(uniform), 1 / len(uniform)))
    assert skewed.prior.max() / skewed.prior.min() == pytest.approx(len(skewed))


@every_random_task
def test_a_subset_of_contexts_is_in_lexicographic_order(task: Task[Any]) -> None:
    inputs = draw_facts(task, task.config(T0=100), 0).inputs
    assert np.array_equal(inputs, np.unique(inputs, axis=0))


# A change of any of these digests means that the version of the task must go up.
@pytest.mark.parametrize(
    ("name", "options", "digest"),
    [
        ("bigram", {}, "e12e94ad0b5939a5"),
        ("bigram", {"N": 10}, "adf5fc04902352a3"),
        ("bigram", {"N": 10, "T0": 60}, "7be0e8dd23f5dad3"),
        ("ngram", {}, "de518993fef21664"),
        ("ngram", {"N": 5, "S": 1}, "93358b189a012cb2"),
        ("ngram", {"N": 1000, "S": 10, "T0": 60}, "2fa28c9bb1577f74"),
        ("low-entropy", {}, "0e3344861d6b7a28"),
        ("low-entropy", {"N": 10, "p": 0.25}, "72d28489cb6b6519"),
        ("low-entropy", {"N": 10, "p": 0.25, "noise": "concentrated"}, "05198baf509c9f2d"),
        ("geometric", {}, "77047811e3458afe"),
        ("geometric", {"N": 10, "alpha": 0.5}, "fa3de2e533666d5c"),
        ("geometric", {"N": 8, "S": 3, "T0": 40, "nb": 3}, "d51086d8af7e92cf"),
        ("recall", {}, "364a4814682e4de9"),
        ("facts", {}, "899f6aa457f0111d"),
        ("world", {}, "1c77021a6d57c684"),
    ],
)
def test_version_1_gives_these_facts(name: str, options: dict[str, Any], digest: str) -> None:
    task = TASKS[name]
    assert task.version == 1
    assert draw_facts(task, task.config(**options), 0).sha256()[:16] == digest


def test_version_1_of_almost_low_rank_gives_these_facts() -> None:
    task = TASKS["almost-low-rank"]  # rounding differs between matrix libraries, so no digest
    facts = draw_facts(task, task.config(N=4, r=2, sigma=0.1), 0)
    assert task.version == 1
    assert np.allclose(
        facts.targets[:2],
        [
            [0.2329924362, 0.0270510748, 0.3926431771, 0.3473133119],
            [0.1880922982, 0.1640499110, 0.3705173712, 0.2773404197],
        ],
        rtol=1e-8,
    )


@every_random_task
def test_answers_are_the_tokens_by_default(task: Task[Any]) -> None:
    assert task.config(N=7) == task.config(N=7, A=7)
    assert task.shape(task.config(N=7)).answers == 7


@every_random_task
@pytest.mark.parametrize("A", [2, 5, 30])
def test_answers_may_be_fewer_or_more_than_tokens(task: Task[Any], A: int) -> None:
    config = task.config(N=10, A=A, T0=90)
    facts, plain = draw_facts(task, config, 3), draw_facts(task, task.config(N=10, T0=90), 3)
    assert facts.shape == task.shape(config)
    assert (facts.vocab, facts.answers) == (10, A)
    assert np.array_equal(facts.inputs, plain.inputs)  # the contexts are drawn first, and have nothing to do with A
    assert facts.distributions().shape == (90, A)
    likeliest = facts.distributions().argmax(axis=1)
    assert min(A - 1, 10) <= likeliest.max() < A  # beyond the tokens, if there are more


@every_random_task
def test_answers_are_an_option_that_records_without_it_do_not_have(task: Task[Any]) -> None:
    (field,) = [field for field in dataclasses.fields(task.config) if field.name == "A"]
    assert field.metadata["later"]
    assert options_of(task.config)["A"].automatic


@st.composite
def small_configs(draw: st.DrawFn) -> tuple[Task[Any], Any]:
    task = RANDOM[draw(st.sampled_from(list(RANDOM)))]
    N = draw(st.integers(2, 6))
    A = draw(st.none() | st.integers(2, 8))
    answers = N if A is None else A
    S = 2 if task.name == "bigram" else draw(st.integers(1, 3))
    own: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "bigram": {},
        "ngram": {"S": st.just(S)},
        "low-entropy": {
            "S": st.just(S),
            "p": st.floats(0, (answers - 1) / answers),
            "noise": st.sampled_from(["spread", "concentrated"]),
        },
        "geometric": {"S": st.just(S), "alpha": st.floats(0, 1), "nb": st.none() | st.integers(1, answers)},
        "almost-low-rank": {"S": st.just(S), "r": st.integers(1, 10), "sigma": st.floats(0, 1000)},
    }
    shared = {"T0": st.none() | st.integers(1, N**S), "zipf": st.just(0.0) | st.floats(0, 50)}
    return task, task.config(N=N, A=A, **draw(st.fixed_dictionaries(own[task.name] | shared)))


@given(made=small_configs(), seed=st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_any_valid_config_gives_facts_of_the_declared_shape(made: tuple[Task[Any], Any], seed: int) -> None:
    task, config = made
    validate(config, task.name)
    facts = draw_facts(task, config, seed)
    assert facts.shape == task.shape(config)
    assert len(facts) == config.T0
    assert config == dataclasses.replace(config)  # resolved options are a valid choice of their own
    assert facts.bayes_accuracy() <= 1 + 1e-9


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("bigram", {"T0": "9999"}, "bigram: T0=9999 is more than the N^S=2500 distinct contexts (N=50, S=2)"),
        ("bigram", {"N": "1"}, "bigram: N=1: a whole number of at least 2 is needed"),
        ("bigram", {"S": "3"}, "unknown option of bigram 'S'"),
        ("ngram", {"S": "0"}, "ngram: S=0: a whole number of at least 1 is needed"),
        ("ngram", {"T0": "0"}, "ngram: T0=0: a whole number of at least 1, or auto is needed"),
        ("ngram", {"zipf": "-1"}, "ngram: zipf=-1: a number of at least 0 is needed"),
        ("low-entropy", {"N": "2", "p": "0.6"}, "low-entropy: p=0.6 is more than 1-1/A=0.5 (A=2)"),
        ("low-entropy", {"A": "2", "p": "0.6"}, "low-entropy: p=0.6 is more than 1-1/A=0.5 (A=2)"),
        ("bigram", {"A": "1"}, "bigram: A=1: a whole number of at least 2, or auto is needed"),
        ("low-entropy", {"p": "-0.1"}, "low-entropy: p=-0.1: a number from 0 to 1 is needed"),
        ("low-entropy", {"noise": "pink"}, "low-entropy: noise=pink: one of spread, concentrated is needed"),
        ("geometric", {"nb": "21"}, "geometric: nb=21 is more than the A=20 answers"),
        ("geometric", {"nb": "6", "A": "5"}, "geometric: nb=6 is more than the A=5 answers"),
        ("geometric", {"alpha": "1.5"}, "geometric: alpha=1.5: a number from 0 to 1 is needed"),
        ("recall", {"N": "10", "A": "11"}, "recall: A=11 is more answers than there are inputs, N=10"),
        ("recall", {"A": "1"}, "recall: A=1: a whole number of at least 2, or auto is needed"),
        ("facts", {"D": "9", "A": "8"}, "facts: D=9 is more than the A=8 answers of all relations"),
        ("facts", {"subjects": "4"}, "facts: D=8 is more answers than a relation has facts (subjects=4)"),
        ("facts", {"T0": "1025"}, "facts: T0=1025 is more than the 1024 pairs of a subject and a relation"),
        (
            "facts",
            {"copies": "2"},
            "facts: copies=2 is more than noise=0 tokens out of noise_vocab=16 can tell apart (1)",
        ),
        ("world", {"T0": "1248"}, "world: T0=1248: a whole number from 1 to 1247, or auto is needed"),
        ("text", {"N": "201"}, "text: N=201: a whole number from 2 to 200 is needed"),
        ("text", {"S": "3"}, "text: S=3: a whole number from 1 to 2 is needed"),
        ("almost-low-rank", {"r": "0"}, "almost-low-rank: r=0: a whole number of at least 1 is needed"),
        ("almost-low-rank", {"sigma": "-1"}, "almost-low-rank: sigma=-1: a number from 0 to 1000 is needed"),
    ],
)
def test_mistakes_on_the_command_line_are_told_in_a_sentence(name: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(TASKS[name].config, given, name, f"see 'membench tasks {name}'")
    assert message in str(caught.value)


def test_auto_on_the_command_line_is_the_default() -> None:
    made = expand(TASKS["geometric"].config, {"T0": "auto", "nb": "auto", "A": "auto"}, "geometric", "")
    assert made == [TASKS["geometric"].config()]
