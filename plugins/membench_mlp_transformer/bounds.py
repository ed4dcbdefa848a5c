"""What is proven about the MLP transformer, and figures for MLPs alone."""

from __future__ import annotations

from membench.api import Bound, NotApplicable, Setting
from membench.theory.attention_rank import Features, memorisable_count
from membench.theory.counting import as_accuracy
from membench.theory.divergence_bounds import DANA, DERIVED, Family
from membench.theory.universal_bounds import MADDEN, zero_head_accuracy

ARCHITECTURE = "mlp-transformer"
BAUM = "Baum, 'On the Capabilities of Multilayer Perceptrons', Journal of Complexity 4, 1988"
BUBECK = (
    "Bubeck, Eldan, Lee, Mikulincer, 'Network Size and Weights Size for Memorization with Two-Layers Neural Networks', "
    "2020, arXiv:2006.02855"
)


def _require_plane(setting: Setting) -> None:
    if setting.config.d == 1 and setting.shape.answers > 2:
        raise NotApplicable("d=1, and then only two answers can ever be given; d >= 2 is needed")


def _feature_rank(setting: Setting) -> float:
    _require_plane(setting)
    if not setting.config.skip_position:
        raise NotApplicable("skip_position=false, and the theorem's residual stream contains the position")
    return memorisable_count(setting.facts, Features(setting.config.d, setting.config.d, 1))


def _majority(setting: Setting) -> float:
    _require_plane(setting)
    return zero_head_accuracy(setting.facts)


def bounds() -> list[Bound]:
    family = Family(ARCHITECTURE, lambda config: config.d, "mlp")
    return [*_guarantees(), *_comparisons(), *family.limits(), *family.constants()]


def _guarantees() -> list[Bound]:
    feature_rank = Bound(
        name="mlp-feature-rank",
        summary="What its one head memorises when all neurons are silent.",
        formula="rank(x_S, W_V xbar) over the support; min(d, N) + min(d, N) for all bigrams",
        latex=r"\operatorname{rank}\big(x_S\mid W_V\bar x\big)",
        quantity="associations",
        direction="lower",
        reference=f"Theorem 1 of {DANA} with H=1 and d_h=d; {DERIVED}",
        value=_feature_rank,
        architecture=ARCHITECTURE,
    )
    return [
        feature_rank,
        as_accuracy(
            feature_rank, name="mlp-feature-rank-accuracy", summary="What its one head memorises, and guesses."
        ),
        Bound(
            name="mlp-majority",
            summary="Head and neurons that write nothing, and the majority answer for each last token.",
            formula="sum_q max_k sum_{t: t_S=q} p_t pi(k|t)",
            latex=r"\sum_q\max_k\sum_{t:\,t_S=q}p_t\,\pi(k\mid t)",
            quantity="accuracy",
            direction="lower",
            reference=DERIVED,
            value=_majority,
            architecture=ARCHITECTURE,
        ),
    ]


def _neurons(setting: Setting) -> int:
    if setting.config.layers > 1:
        raise NotApplicable(f"layers={setting.config.layers}, and the theorem is about one hidden layer")
    return int(setting.config.w)


def _madden(setting: Setting) -> float:
    if setting.config.layers > 1:
        raise NotApplicable(f"layers={setting.config.layers}, and the theorem is about one")
    if setting.parameters is None:
        raise NotApplicable("the number of parameters is not known here")
    return setting.parameters / (setting.shape.answers - 1)


def _comparisons() -> list[Bound]:
    """Theorems about an MLP on points in general position, which the sums of token embeddings need not be; and one
    about a transformer of one layer.
    """
    return [
        Bound(
            name="madden-lower",
            summary="One layer with an analytic activation meets arbitrary distributions of as many contexts.",
            formula="P/(A-1), up to a constant",
            latex=r"\Omega\left(\frac P{A-1}\right)",
            quantity="capacity",
            direction="order",
            reference=MADDEN,
            value=_madden,
            architecture=ARCHITECTURE,
            restricted_to="models whose neurons have most of the parameters",
        ),
        Bound(
            name="baum",
            summary="Two labels of points in general position, by threshold neurons.",
            formula="w d",
            latex=r"wd",
            quantity="associations",
            direction="reference",
            reference=BAUM,
            value=lambda setting: _neurons(setting) * setting.config.d,
            architecture=ARCHITECTURE,
        ),
        Bound(
            name="bubeck",
            summary="Real labels of points in general position, by ReLU neurons.",
            formula="floor(w/4) d",
            latex=r"\lfloor w/4\rfloor\,d",
            quantity="associations",
            direction="reference",
            reference=BUBECK,
            value=lambda setting: _neurons(setting) // 4 * setting.config.d,
            architecture=ARCHITECTURE,
        ),
    ]
