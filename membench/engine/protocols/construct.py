"""The protocol `construct`: weights by a closed form, certified like any others by asking every fact."""

from __future__ import annotations

from collections.abc import Sequence

from membench.engine.protocols.protocol import Construct, check_construction
from membench.engine.workbench import Outcome, Workbench


def find_weights(bench: Workbench, config: Construct, seeds: Sequence[int]) -> list[Outcome]:
    outcomes = []
    for done, seed in enumerate(seeds):
        bench.report(done / len(seeds), "constructing")
        outcomes.append(_construct(bench, config, seed))
    return outcomes


def _construct(bench: Workbench, config: Construct, seed: int) -> Outcome:
    known = bench.architecture.constructions
    check_construction(bench.architecture, config)
    name = next(iter(known)) if config.construction == "default" else config.construction
    filled, facts = bench.model(seed, "float64"), bench.facts(seed)
    report = dict(known[name](filled, facts))
    module = bench.model(seed, config.dtype)  # the ordinary model, with nothing but the constructed weights
    module.load_state_dict(filled.state_dict())
    return Outcome(seed, module, facts, trace={"construction": name, **report})
