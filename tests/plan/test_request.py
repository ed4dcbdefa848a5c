from __future__ import annotations

from typing import Any

import pytest

from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.plan.request import Request, plan

REGISTRY = Registry()


def planned(models: str = "aot", tasks: str = "bigram", **more: Any) -> list[Any]:
    return plan(REGISTRY, Request([models], [tasks], **more))


def test_a_grid_has_every_combination_once() -> None:
    trials = planned(model_options=["H=1:3"], task_options=["N=5,6"], seeds=(0, 1))
    assert len(trials) == len({(trial.id, trial.seed) for trial in trials}) == 12


def test_all_means_every_model_and_task() -> None:
    pairs = {
        (trial.architecture.name, trial.task.name) for trial in planned("all", "all", protocol="quick", seeds=(0,))
    }
    installed = [one for one in REGISTRY.architectures.values() if not one.missing]
    assert len(pairs) == len(installed) * len(REGISTRY.tasks) - 1  # a table of all that `world` could ask is too large
    assert ("lookup", "world") not in pairs


def test_with_several_models_an_option_can_be_for_one_of_them() -> None:
    trials = planned("aot,mlp-transformer", model_options=["d=8", "aot.H=3", "mlp-transformer.w=7"], seeds=(0,))
    assert [(t.config.d, getattr(t.config, "H", None), getattr(t.config, "w", None)) for t in trials] == [
        (8, 3, None),
        (8, None, 7),
    ]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"models": "aott"}, "did you mean 'aot'"),
        ({"tasks": "bigrm"}, "did you mean 'bigram'"),
        ({"protocol": "quik"}, "did you mean 'quick'"),
        ({"model_options": ["h=3"]}, "unknown option of aot 'h'"),
        ({"model_options": ["d=ten"]}, "d=ten: a whole number"),
        ({"model_options": ["H=-1"]}, "H=-1: a whole number of at least 0"),
        ({"model_options": ["d=10", "d_h=12"]}, "d_h=12"),
        ({"model_options": ["H=5:1"]}, "5:1 is empty"),
        ({"task_options": ["N=50", "T0=9999"]}, "T0=9999 is more than"),
        ({"task_options": ["nothing=1"]}, "unknown option of bigram 'nothing'"),
        ({"protocol_options": ["steps=0"]}, "steps=0: a whole number of at least 1"),
        ({"protocol_options": ["dtype=float16"]}, "dtype=float16: one of float32, float64"),
        ({"models": ","}, "no name given"),
        ({"models": "aot,lookup", "model_options": ["H=3"]}, "NAME.OPTION=VALUE"),
        ({"models": "lookup", "task_options": ["N=5000", "T0=10"]}, "lookup on bigram"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(**request_)
    assert words in str(caught.value)


def test_mistakes_of_all_parts_are_reported_together() -> None:
    with pytest.raises(UsageError) as caught:
        planned(model_options=["d=ten"], task_options=["N=0"], protocol="quik")
    assert len(str(caught.value).splitlines()) == 3


def test_a_grid_beyond_reason_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 100,000"):
        planned(model_options=["H=1:1000"], task_options=["N=2:1000"])
