from __future__ import annotations

import shlex
from typing import Any

import pytest
from samples import make_record

from membench.commands.run import run
from membench.interface.options import label
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.records.record import Record
from membench_leaderboard.rerun import rerun_command

REGISTRY = Registry()


def record_of(trial: Trial, **more: Any) -> Record:
    """The identity that a trial leaves in its record."""
    from dataclasses import asdict

    def part(name: str, config: Any, version: int | None = None) -> dict[str, Any]:
        return {"name": name, "version": version, "config": asdict(config), "label": label(config)}

    return make_record(
        id=trial.id,
        seed=trial.seed,
        architecture=part(trial.architecture.name, trial.config),
        task=part(trial.task.name, trial.task_config, trial.task.version),
        protocol=part(trial.protocol.name, trial.protocol_config, trial.protocol.version),
        **more,
    )


def planned(command: str) -> list[Trial]:
    words = shlex.split(command)
    assert words[:2] == ["membench", "run"]
    told = run.make_context("run", words[2:]).params
    return list(
        plan(
            REGISTRY,
            Request(
                told["models"], told["tasks"], told["model_options"], told["task_options"], told["protocol"],
                told["protocol_options"], told["seeds"],
            ),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(["aot"], ["bigram"]), "--model aot --task bigram --seeds 5"),
        (Request(["aot"], ["bigram"], ["d=8", "H=3"], ["N=30"]), "-M d=8 -M H=3 -T N=30 --seeds 5"),
        (Request(["aot"], ["bigram"], ["d_h=4", "shared_projection=true"], seeds=(3, 4, 5)),
         "-M d_h=4 -M shared_projection=true --seeds 3:5"),
        (Request(["lookup"], ["low-entropy"], task_options=["p=0.25", "N=8"], protocol="quick", seeds=(7,)),
         "--protocol quick --seeds 7:7"),
        (Request(["lookup"], ["ngram"], protocol_options=["lr=0.003", "beta1=0.9", "beta2=0.95"], seeds=(1, 5)),
         "-P lr=0.003 -P beta1=0.9 -P beta2=0.95 --seeds 1,5"),
        (Request(["linear-memory"], ["bigram"], protocol="dana2024", protocol_options=["lr_end=0.0001"], seeds=(0,)),
         "--protocol dana2024 -P lr_end=0.0001 --seeds 1"),
        (Request(["aot"], ["bigram"], protocol="construct"), "--protocol construct --seeds 5"),
    ],
)  # fmt: skip
def test_the_command_makes_the_same_trials_in_few_words(request_: Request, words: str) -> None:
    trials = list(plan(REGISTRY, request_))
    command = rerun_command(record_of(trials[0]), [trial.seed for trial in trials], REGISTRY)
    assert words in command
    assert [(trial.id, trial.seed) for trial in planned(command)] == [(trial.id, trial.seed) for trial in trials]


def test_options_that_are_as_they_would_be_anyway_are_left_out() -> None:
    (trial,) = plan(REGISTRY, Request(["aot"], ["bigram"], seeds=(0,)))
    assert rerun_command(record_of(trial), [0], REGISTRY) == "membench run --model aot --task bigram --seeds 1"


def test_a_record_with_its_floor_is_made_again_with_it() -> None:
    (trial,) = plan(REGISTRY, Request(["aot"], ["low-entropy"], seeds=(0,)))
    record = record_of(trial, metrics={"accuracy": 1.0, "excess_kl": 0.1})
    assert rerun_command(record, [0], REGISTRY).endswith("--floor")


def test_an_architecture_that_is_not_here_is_told_with_all_its_options_and_its_file() -> None:
    stranger = {"name": "mine", "distribution": "/home/me/my plugin.py", "config": {"d": 3, "flag": True, "auto": None}}
    command = rerun_command(make_record(architecture=stranger), [0, 1], REGISTRY)
    assert "--model mine --task bigram -M d=3 -M flag=true" in command
    assert command.endswith("--plugin '/home/me/my plugin.py'")


def test_what_a_record_says_cannot_become_another_command() -> None:
    evil = {"name": "x; rm -rf ~", "config": {"d": "$(reboot)"}}
    assert shlex.split(rerun_command(make_record(architecture=evil), [0], REGISTRY))[3:8] == [
        "x; rm -rf ~", "--task", "bigram", "-M", "d=$(reboot)",
    ]  # fmt: skip


def test_a_class_in_a_file_is_named_with_its_file() -> None:
    architecture = {"name": "Bag", "config": {"width": 16}, "distribution": "/home/me/layer.py:Bag"}
    command = rerun_command(make_record(architecture=architecture), [0], Registry())
    assert command.startswith("membench run --model /home/me/layer.py:Bag --task bigram -M width=16")
