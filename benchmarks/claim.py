"""Is `converged` what it says it is? python benchmarks/claim.py

For a small model of each built-in architecture that can be asked for too much: facts held when 1, 1.5 and 2.5 times
its threshold are asked, what four times the budget gains, and what is proven. Facts held must not fall as more is
asked, four times the steps must not gain a hundredth of what is asked beyond noise, and nothing may lie below a
guarantee. Exit code 1 if any of it does not hold. Records go to --out; the same command continues.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import numpy as np
from tabulate import tabulate

import membench
from membench.analysis.intervals import difference_interval, mean_interval
from membench.measure.metrics import METRICS

# sequence-encoder and lookup have a row for each context, so that nothing can be too much for them
MODELS: dict[str, dict[str, Any]] = {
    "aot": {"d": 5, "H": 2},
    "mlp-transformer": {"d": 5, "w": 10},
    "attention-mlp": {"d": 5, "w": 6},
    "linear-memory": {"d": 18},
    "pair-mlp": {"w": 6},
    "lstm": {"d": 4},
    "gru": {"d": 4},
    "transformer-encoder": {"d": 4},
}
LOADS = (1.0, 1.5, 2.5)
LONGER = 4
SMALLEST_GAIN = METRICS["accuracy"].smallest_loss  # what a regression gate takes seriously


def held(model: str, T: dict[str, int], steps: int, out: str) -> tuple[np.ndarray[Any, Any], float]:
    """Facts right for each seed, and the most that is guaranteed."""
    results = membench.run(model, "bigram", M=MODELS[model], T=T, P={"steps": steps}, out=out, progress=False)
    facts = np.array([record.metrics["accuracy"] * record.task["contexts"] for record in results.records])
    proven = [record.proven("accuracy")[0] * record.task["contexts"] for record in results.records]
    return facts, max((one for one in proven if math.isfinite(one)), default=math.nan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results")
    parser.add_argument("-N", type=int, default=24, help="tokens")
    parser.add_argument("--models", default=",".join(MODELS), help="some of these, separated by commas")
    given = parser.parse_args()
    rows, wrong = [], []
    for model in given.models.split(","):
        found = membench.capacity(model, "bigram", M=MODELS[model], T={"N": given.N}, out=given.out)
        threshold = found.thresholds[0].facts
        before: np.ndarray[Any, Any] | None = None
        for load in LOADS:
            T0 = min(round(load * threshold), given.N**2)
            facts, proven = held(model, {"N": given.N, "T0": T0}, 1000, given.out)
            more, _ = held(model, {"N": given.N, "T0": T0}, 1000 * LONGER, given.out)
            gain = mean_interval(more - facts)  # the seeds pair: same facts, same initial weights
            words = []
            if before is not None and difference_interval(facts, before)[1] < 0:
                words.append("fewer held than when less was asked")
            if gain[0] > SMALLEST_GAIN * T0:
                words.append(f"{LONGER} times the steps hold more")
            if facts.mean() < proven:
                words.append("below what is proven")
            wrong += [f"{model} at {T0} facts: {word}" for word in words]
            rows.append(
                {
                    "model": model,
                    "asked": T0,
                    "held": f"{facts.mean():.1f}",
                    f"with {LONGER}x steps": f"{more.mean():.1f}",
                    "gain (95 %)": f"{gain[0]:+.1f} to {gain[1]:+.1f}",
                    "proven": f"{proven:.1f}" if math.isfinite(proven) else "-",
                    "": "; ".join(words) or "ok",
                }
            )
            before = facts
            print(tabulate(rows[-1:], tablefmt="plain"), file=sys.stderr)
    print(tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True))
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
