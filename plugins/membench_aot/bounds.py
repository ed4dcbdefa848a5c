"""What is proven about the attention-only transformer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from membench.api import Bound, NotApplicable, Setting, Shape
from membench.theory.attention_rank import Features, memorisable_count, memorisable_mass
from membench.theory.counting import as_accuracy, shattered
from membench.theory.divergence_bounds import DANA, DERIVED, Family
from membench.theory.universal_bounds import zero_head_accuracy

if TYPE_CHECKING:
    from membench_aot import AttentionOnlyConfig

MAHDAVI = (
    "Mahdavi, Liao, Thrampoulidis, 'Memorization Capacity of Multi-Head Attention in Transformers', ICLR 2024, "
    "arXiv:2306.02010"
)
HUBEN_MORRIS = "Huben, Morris, 'Attention-Only Transformers and Implementing MLPs with Attention Heads', 2023"
MADDEN = "Madden, Fox, Thrampoulidis, 2024, arXiv:2405.13718"


# Sizes of the formal model with one layer.


def parameters(shape: Shape, d: int, d_h: int, H: int) -> int:
    return d * (shape.length + shape.vocab + shape.answers + 4 * d_h * H)


def identifiable_parameters(shape: Shape, d: int, d_h: int, H: int) -> int:
    """Directions in which changing the parameters changes the model, at almost every point; for d_h <= d < N, A.

    Two invertible d_h x d_h matrices of each head cancel, and so do an invertible change of basis of the stream, a
    vector moved from the positions to the words, and a vector added to all unembeddings. All positions but the last
    are seen through the keys and values only, which leaves d - 2 H d_h dimensions of them unseen if that is positive.
    """
    heads = 2 * H * d_h * (2 * d - d_h)
    unseen = (shape.length - 1) * max(0, d - 2 * H * d_h)
    return d * (shape.length + shape.vocab + shape.answers) + heads - d * d - 2 * d - unseen


# Values.


def _config(setting: Setting) -> AttentionOnlyConfig:
    config: AttentionOnlyConfig = setting.config
    return config


def _require_formal(setting: Setting) -> AttentionOnlyConfig:
    """The model of the theorems: heads with projections of their own, positions in the residual stream."""
    config = _config(setting)
    if config.d_h > config.d:
        raise NotApplicable(f"d_h={config.d_h} > d={config.d}")
    if config.shared_projection:
        raise NotApplicable("shared_projection=true, and the theorem's heads have projections of their own")
    if not config.skip_position:
        raise NotApplicable("skip_position=false, and the theorem's residual stream contains the position")
    return config


def _require_plane(config: AttentionOnlyConfig, shape: Shape) -> None:
    if config.d == 1 and shape.answers > 2:
        raise NotApplicable("d=1, and then only two answers can ever be given; d >= 2 is needed")


def _features(config: AttentionOnlyConfig) -> Features:
    return Features(config.d, config.d_h, config.H)


def _theorem_1(setting: Setting) -> float:
    config, facts = _require_formal(setting), setting.facts
    _require_plane(config, setting.shape)
    if setting.shape.length < 2:
        raise NotApplicable("S=1, and with a single position all heads repeat the residual stream")
    promised = min(len(facts), config.H * config.d_h + config.d)
    if (rank := memorisable_count(facts, _features(config))) < promised:
        raise NotApplicable(f"these contexts span {rank} dimensions of the {promised} that are promised")
    return promised


def _feature_rank(setting: Setting) -> float:
    config = _require_formal(setting)
    _require_plane(config, setting.shape)
    return memorisable_count(setting.facts, _features(config))


def _feature_rank_accuracy(setting: Setting) -> float:
    config = _require_formal(setting)
    _require_plane(config, setting.shape)
    return memorisable_mass(setting.facts, _features(config))


def _embedding_assisted(setting: Setting) -> float:
    config = _require_formal(setting)
    if config.d < 3:
        raise NotApplicable(f"d={config.d}, and d >= 3 is needed: two dimensions for the answer and some for features")
    return memorisable_count(setting.facts, Features(config.d - 2, config.d_h, config.H, table=True))


def _majority(setting: Setting) -> float:
    _require_plane(_config(setting), setting.shape)
    return zero_head_accuracy(setting.facts)


def _mahdavi(setting: Setting) -> float:
    """Contexts with different last tokens, whose queries are in general position as the theorem asks."""
    config, S = _require_formal(setting), setting.shape.length
    _require_plane(config, setting.shape)
    if config.d < S:
        raise NotApplicable(f"S={S} > d={config.d}, and a context's tokens must be linearly independent")
    last = len(set(setting.facts.inputs[:, -1].tolist()))
    return min(last, config.H * (min(S, config.d_h) - 1) + 1)


def _mahdavi_as_plotted(setting: Setting) -> float:
    config = _require_formal(setting)
    return config.H * (config.d_h - 1) + 1


def _two_dimensional_parameters(setting: Setting) -> float:
    facts = setting.facts
    plane = Features(2, 1, max(0, len(facts) - 2))
    if (rank := memorisable_count(facts, plane)) < len(facts):
        raise NotApplicable(f"these {len(facts)} contexts span {rank} dimensions of attention in the plane")
    return parameters(facts.shape, plane.d, plane.d_h, plane.H)


def _readout_shattering(setting: Setting) -> float:
    config = _require_formal(setting)
    return shattered(setting.shape.answers, config.d * (config.d + config.H * config.d_h))


def _exact_distribution(setting: Setting) -> float:
    config, (N, _, A) = _require_formal(setting), setting.shape
    if config.layers != 1:
        raise NotApplicable(f"layers={config.layers}, and the parameters are counted for one layer")
    if config.d >= A - 1:
        raise NotApplicable(f"d={config.d} >= A-1={A - 1}, where rank d is no restriction")
    if config.d >= N:
        raise NotApplicable(f"d={config.d} >= N={N}, and the parameters are counted for d < N")
    identifiable = identifiable_parameters(setting.shape, config.d, config.d_h, config.H)
    return identifiable / config.d - A + 1 + config.d


def _huben_morris(setting: Setting) -> float:
    """The order of embeddings and unembeddings together is that of the larger of the two."""
    config, (N, S, A) = _config(setting), setting.shape
    if config.d < 2 + S or config.d_h < 1 + S:
        raise NotApplicable(f"d >= {2 + S} and d_h >= {1 + S} are needed, not d={config.d} and d_h={config.d_h}")
    return (config.d + S) * (S + max(N, A) + len(setting.facts))


def _require_all_independent(setting: Setting) -> None:
    """Theorem 1 at eps = 0: every context of the support can be given any vector."""
    rank = memorisable_count(setting.facts, _features(_require_formal(setting)))
    if rank < len(setting.facts):
        raise NotApplicable(f"H d_h + d reaches {rank} of T0={len(setting.facts)} contexts")


# As bounds.


def bounds() -> list[Bound]:
    family = Family("aot", lambda config: config.d, "aot")
    return [
        *_guarantees(),
        *_others(),
        *_limits(),
        *family.limits(),
        *family.constants(),
        *family.guarantees(_require_all_independent),
    ]


def _guarantees() -> list[Bound]:
    theorem_1 = Bound(
        name="theorem-1",
        summary="One layer memorises as many associations as its features have dimensions.",
        formula="min(T0, H d_h + d)",
        latex=r"\min(T_0,\ Hd_h+d)",
        quantity="associations",
        direction="lower",
        reference=f"Theorem 1 at eps=0 and Corollary 1 of {DANA}; validity by the exact rank, {DERIVED}",
        value=_theorem_1,
        architecture="aot",
    )
    embedding_assisted = Bound(
        name="embedding-assisted",
        summary="Two dimensions of the embedding as a free table, the others as features.",
        formula="min(T0, N_last + H min(d_h, d-2))",
        latex=r"\min\big(T_0,\ N_{\text{last}}+H\min(d_h,d-2)\big)",
        quantity="associations",
        direction="lower",
        reference=DERIVED,
        value=_embedding_assisted,
        architecture="aot",
    )
    return [
        theorem_1,
        as_accuracy(
            theorem_1,
            name="corollary-2",
            summary="Theorem 1 and guesses for the rest.",
            reference=f"Corollary 2 of {DANA}",
        ),
        Bound(
            name="feature-rank",
            summary="The exact number of these contexts that generic attention tells apart.",
            formula="rank(x_S, W_V xbar) over the support; min(d, N) + H min(d_h, d, N) for all bigrams",
            latex=r"\operatorname{rank}\big(x_S\mid W_V\bar x\big)",
            quantity="associations",
            direction="lower",
            reference=DERIVED,
            value=_feature_rank,
            architecture="aot",
        ),
        Bound(
            name="feature-rank-accuracy",
            summary="The likeliest contexts that generic attention tells apart, and nothing for the rest.",
            formula="sum over the likeliest independent contexts of p_t max_k pi(k|t)",
            latex=r"\max_{I\ \text{independent}}\ \sum_{t\in I}p_t\max_k\pi(k\mid t)",
            quantity="accuracy",
            direction="lower",
            reference=DERIVED,
            value=_feature_rank_accuracy,
            architecture="aot",
        ),
        embedding_assisted,
        as_accuracy(
            embedding_assisted,
            name="embedding-assisted-accuracy",
            summary="The embedding-assisted construction and guesses for the rest.",
        ),
        Bound(
            name="majority",
            summary="Heads that write nothing, and the majority answer for each last token.",
            formula="sum_q max_k sum_{t: t_S=q} p_t pi(k|t)",
            latex=r"\sum_q\max_k\sum_{t:\,t_S=q}p_t\,\pi(k\mid t)",
            quantity="accuracy",
            direction="lower",
            reference=DERIVED,
            value=_majority,
            architecture="aot",
        ),
        Bound(
            name="corollary-1",
            summary="Parameters with which some attention-only transformer memorises all these facts.",
            formula="2 (S + N + A + 4 (T0 - 2))",
            latex=r"2\big(S+N+A+4(T_0-2)\big)",
            quantity="parameters",
            direction="upper",
            reference=f"Corollary 1 of {DANA}",
            value=_two_dimensional_parameters,
            architecture="aot",
            restricted_to="models with d = 2",
            expensive=True,
        ),
    ]


def _others() -> list[Bound]:
    mahdavi = Bound(
        name="mahdavi",
        summary="Heads without a skip connection, by saturating them one after the other.",
        formula="min(N_last, H (min(S, d_h) - 1) + 1)",
        latex=r"\min\big(N_{\text{last}},\ H(\min(S,d_h)-1)+1\big)",
        quantity="associations",
        direction="lower",
        reference=MAHDAVI,
        value=_mahdavi,
        architecture="aot",
    )
    return [
        mahdavi,
        as_accuracy(mahdavi, name="mahdavi-accuracy", summary="Mahdavi et al. and guesses for the rest."),
        Bound(
            name="mahdavi-plotted",
            summary="The line that Dana et al. plot for Mahdavi et al.; their theorem needs S >= d_h for it.",
            formula="H (d_h - 1) + 1",
            latex=r"H(d_h-1)+1",
            quantity="associations",
            direction="reference",
            reference=f"{MAHDAVI}, as read by {DANA}",
            value=_mahdavi_as_plotted,
            architecture="aot",
        ),
        Bound(
            name="huben-morris",
            summary="Parameters of heads that simulate an MLP which memorises.",
            formula="(d + S) (S + max(N, A) + T0)",
            latex=r"O\big((d+S)(S+\max(N,A)+T_0)\big)",
            quantity="parameters",
            direction="order",
            reference=HUBEN_MORRIS,
            value=_huben_morris,
            architecture="aot",
        ),
        Bound(
            name="theorem-3",
            summary="A divergence of the order of eps log 1/eps above that of an approximable distribution.",
            formula="O(eps log 1/eps)",
            latex=r"d_{KL}(\pi,M)+O(\varepsilon\log1/\varepsilon)",
            quantity="kl",
            direction="order",
            reference=f"Theorem 3 of {DANA}",
            value=lambda setting: math.nan,
            architecture="aot",
        ),
    ]


def _limits() -> list[Bound]:
    return [
        Bound(
            name="readout-shattering",
            summary="The most contexts of which a readout of frozen features can realise every labelling.",
            formula="T with T log A = log 2 + D log(e T A(A-1) / (2D)), D = d (H d_h + d)",
            latex=r"T\log A\le\log2+D\log\frac{eTA(A-1)}{2D},\quad D=d(Hd_h+d)",
            quantity="capacity",
            direction="upper",
            reference=f"cells of an arrangement of hyperplanes (Cover 1965, Warren 1968); {DERIVED}",
            value=_readout_shattering,
            architecture="aot",
            restricted_to="readouts of frozen attention with a frozen unembedding",
        ),
        Bound(
            name="exact-distribution",
            summary="The most contexts whose generic rank-d distributions can be met exactly: a count of dimensions.",
            formula="P_id/d - A + 1 + d",
            latex=r"P_{\mathrm{id}}/d-A+1+d",
            quantity="capacity",
            direction="upper",
            reference=f"{DERIVED}; compare {MADDEN}",
            value=_exact_distribution,
            architecture="aot",
            restricted_to="meeting almost every distribution of rank d exactly",
        ),
    ]
