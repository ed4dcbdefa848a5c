"""Protocols: the ways to find weights for given facts. Declared here without torch, carried out next door."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from membench.errors import UsageError, unknown
from membench.interface.options import option

if TYPE_CHECKING:
    from membench.engine.workbench import Outcome, Workbench
    from membench.interface.declarations import Architecture

PROBE_SEEDS = (1_000_000_007, 1_000_000_009)  # of `converged` and of the shape search; no trial has them


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How weights are found. `version` changes whenever the same trial would be trained differently."""

    name: str
    version: int
    summary: str
    config: type  # a frozen dataclass; its fields are the -P options
    current: bool = True  # an older version is kept under a name of its own, because records of it exist
    ranked: bool = True  # whether its numbers belong on a leaderboard
    check: Callable[[Architecture[Any], Any], None] | None = None  # raises UsageError for what it cannot be used on
    trains: bool = True  # whether it takes steps; then it says how many, and how to take fewer
    work: Callable[[Any, int], float] | None = None  # steps at most, summed over so many seeds
    shortened: Callable[[Any, int], Any] | None = None  # the same training with so many steps and nothing to choose
    probes: int = 0  # parts of `probe(bench, config, part)`, whose scores choose something for all seeds
    module: str = field(repr=False)  # where `find_weights(bench, config, seeds)` is

    def __post_init__(self) -> None:
        """An estimate of the time takes a few steps; without these two it would have to take all of them."""
        if self.trains != (self.work is not None and self.shortened is not None):
            needed = "it must declare work and shortened" if self.trains else "it has neither work nor shortened"
            raise ValueError(f"protocol '{self.name}': trains={self.trains}, so that {needed}")

    @property
    def key(self) -> str:
        """The name on the command line: converged, or converged-v1 for an older version."""
        return self.name if self.current else f"{self.name}-v{self.version}"

    def probe(self, bench: Workbench, config: Any, part: int) -> list[float]:
        scores: list[float] = importlib.import_module(self.module).probe(bench, config, part)
        return scores

    def find_weights(self, bench: Workbench, config: Any, seeds: Sequence[int]) -> list[Outcome]:
        outcomes: list[Outcome] = importlib.import_module(self.module).find_weights(bench, config, seeds)
        return outcomes


@dataclass(frozen=True, kw_only=True)
class Converged:
    steps: int = option(1000, help="Adam steps of the first round; each further round takes twice as many", minimum=1)
    rounds: int = option(
        5,
        help="rounds of each stage at most, left out once more steps no longer help; 1 is for the least loss alone",
        minimum=1,
        maximum=12,
    )
    lr: float | None = option(
        None, help="learning rate at the start; auto chooses from a grid", minimum=1e-6, maximum=10
    )
    beta1: float | None = option(None, help="Adam's first decay; auto chooses", minimum=0, maximum=0.9999)
    beta2: float | None = option(None, help="Adam's second decay; auto chooses", minimum=0, maximum=0.99999)
    dtype: str = option("float32", help="precision of weights and training", choices=("float32", "float64", "bfloat16"))

    def __post_init__(self) -> None:
        if (self.beta1 is None) != (self.beta2 is None):
            raise ValueError("beta1 and beta2 are chosen together: set both or none")


@dataclass(frozen=True, kw_only=True)
class Quick:
    steps: int = option(200, help="Adam steps", minimum=1)
    lr: float = option(0.02, help="learning rate at the start; it falls linearly to zero", minimum=1e-6, maximum=10)


@dataclass(frozen=True, kw_only=True)
class Dana2024:
    batches: int = option(64, help="batches in an epoch", minimum=1)
    batch: int = option(256, help="samples in a batch", minimum=1)
    epochs: int = option(64, help="epochs; the pool of samples is reshuffled in each", minimum=1)
    lr: float = option(1e-2, help="learning rate in the first epoch", minimum=0, maximum=10)
    lr_end: float = option(5e-4, help="learning rate that it falls to, linearly by epoch", minimum=0, maximum=10)


@dataclass(frozen=True, kw_only=True)
class Construct:
    construction: str = option("default", help="which of the architecture's constructions")
    dtype: str = option(
        "float64", help="precision that the weights are rounded to", choices=("float64", "float32"), later=True
    )


def check_construction(architecture: Architecture[Any], config: Construct) -> None:
    known = architecture.constructions
    if not known:
        raise UsageError(f"architecture '{architecture.name}' has no construction; train it with --protocol converged")
    if config.construction not in ("default", *known):
        kind = f"construction of {architecture.name}"
        raise unknown(kind, config.construction, known, f"there are: {', '.join(known)}")


def _converged_work(config: Converged, seeds: int) -> float:
    """Both stages to their end: the second tries four settings in half a round, then two, then one."""
    second = seeds * config.steps * (2.0**config.rounds + 2) if config.rounds > 1 else 0.0
    return _converged_v1_work(config, seeds) + second


def _converged_v1_work(config: Converged, seeds: int) -> float:
    """All rounds of every seed, and the probes: twice the first round, for two seeds and each setting."""
    settings = (1 if config.lr else 3) * (1 if config.beta1 else 2)
    probes = 2 * 2 * settings * config.steps if settings > 1 else 0
    return float(probes + seeds * config.steps * (2**config.rounds - 1))


def _converged_shortened(config: Converged, steps: int) -> Converged:
    first, second = config.beta1 or 0.9, config.beta2 or 0.999
    return replace(config, steps=steps, rounds=1, lr=config.lr or 0.01, beta1=first, beta2=second)


PROTOCOLS = {
    protocol.key: protocol
    for protocol in (
        Protocol(
            name="converged",
            version=2,
            summary="Trained until more steps no longer help: exact gradient over all facts, for the least loss and "
            "then for the most facts.",
            config=Converged,
            work=_converged_work,
            shortened=_converged_shortened,
            probes=len(PROBE_SEEDS),
            module=f"{__package__}.converged",
        ),
        Protocol(
            name="converged",
            version=1,
            current=False,
            summary="The first version of converged, for the least loss alone: finds fewer facts when too many are "
            "asked for.",
            config=Converged,
            work=_converged_v1_work,
            shortened=_converged_shortened,
            probes=len(PROBE_SEEDS),
            module=f"{__package__}.converged_v1",
        ),
        Protocol(
            name="dana2024",
            version=1,
            summary="The training of Dana, Pydi and Chevaleyre (2024): sampled minibatches, their schedule and metric.",
            config=Dana2024,
            work=lambda config, seeds: config.batches * config.epochs * seeds,
            shortened=lambda config, steps: replace(config, batches=steps, epochs=1),
            module=f"{__package__}.dana2024",
        ),
        Protocol(
            name="quick",
            version=1,
            summary="A few hundred exact Adam steps: for smoke tests and demos, never ranked.",
            config=Quick,
            work=lambda config, seeds: config.steps * seeds,
            shortened=lambda config, steps: replace(config, steps=steps),
            ranked=False,
            module=f"{__package__}.quick",
        ),
        Protocol(
            name="construct",
            version=1,
            summary="No training: the architecture's closed-form weights, worked out in float64.",
            config=Construct,
            trains=False,
            check=check_construction,
            module=f"{__package__}.construct",
        ),
    )
}


def get_protocol(name: str, version: int | None = None) -> Protocol:
    """By its name on the command line, or by the name and version of a record."""
    if version is None:
        if name not in PROTOCOLS:
            raise unknown("protocol", name, PROTOCOLS, "list them with: membench run --help")
        return PROTOCOLS[name]
    versions = {one.version: one for one in PROTOCOLS.values() if one.name == name}
    if not versions:
        raise unknown("protocol", name, PROTOCOLS, "list them with: membench run --help")
    if version not in versions:
        there = " and ".join(map(str, sorted(versions)))
        raise UsageError(f"it was made with version {version} of protocol {name}, and version {there} is installed")
    return versions[version]
