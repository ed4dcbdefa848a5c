"""Training any nn.Module: replicas batched by torch.func where that works, one after the other where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from membench.engine.trainer import EPSILON, Batches, Progress
from membench.interface.facts import Facts
from membench.measure.evaluate import InvalidOutput, check_logits

LOOK_EVERY = 10  # steps between looks at the accuracy when all facts are used: it costs as much as the loss
LEAST_ROWS = 64  # contexts at once, however large they are
# A guess and not a clock, so that the decision to compile, which changes last digits, is the same in every run.
EAGER_BYTES_PER_SECOND = 5e8  # activations that steps get through without compiling, roughly
COMPILE_PAYS = 300.0  # seconds of such work
ALL_RIGHT = 1 - 1e-6  # an accuracy that can be nothing else, whatever the rounding of its sum
CHUNK_BYTES = 256 << 20  # activations kept for one backward pass; more contexts than fit are accumulated exactly


_Seen = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # gradient, loss, accuracy


class GeneralTrainer:
    """A Trainer for modules that nothing is known about."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        facts: Sequence[Facts],
        betas: NDArray[np.float32],
        note: Callable[[str], None] = lambda text: None,
        compiling: str = "off",
        planned: int = 0,
    ) -> None:
        """`compiling` is on, off or auto: compile if the planned steps would take minutes without."""
        for module in modules:
            module.train()
        self.replicas = len(modules)
        reason = why_not_batched(modules[0], facts[0]) if self.replicas > 1 else "there is one replica"
        if reason and self.replicas > 1:
            note(f"replicas trained one by one: {reason}")
        groups = [[r] for r in range(self.replicas)] if reason else [list(range(self.replicas))]
        self._lanes = [
            (rows, _Lane([modules[r] for r in rows], [facts[r] for r in rows], betas[rows], note)) for rows in groups
        ]
        for _, lane in self._lanes:
            if compiling == "on" or (compiling == "auto" and lane.estimate(planned) > COMPILE_PAYS):
                lane.compile()

    def advance(
        self,
        rates: NDArray[np.float32],
        batches: Batches | None = None,
        slack: NDArray[np.float32] | None = None,
        finishes: bool = False,
    ) -> Progress:
        seen = np.full((2, *rates.shape), np.nan, dtype=np.float32)
        for rows, lane in self._lanes:
            if rates[rows].any():
                chosen = None if batches is None else Batches(batches.contexts[rows], batches.labels[rows])
                own = None if slack is None else torch.from_numpy(slack[rows])
                seen[:, rows] = lane.advance(torch.from_numpy(rates[rows]), chosen, own, finishes)
        return Progress(loss=seen[0], accuracy=seen[1])

    def state(self, replica: int) -> dict[str, torch.Tensor]:
        rows, lane = next((rows, lane) for rows, lane in self._lanes if replica in rows)
        return lane.state(rows.index(replica))


def why_not_batched(module: nn.Module, facts: Facts) -> str | None:
    """The reason why torch.func cannot run this module on stacked weights, found by trying; None when it can."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            return f"'{name}' is dropout, which is random at every step"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            return f"'{name}' is batch norm, which changes its own statistics"
    tokens = torch.from_numpy(facts.inputs[:2]).to(_device(module))
    weights = {name: torch.stack([p.detach()] * 2) for name, p in module.named_parameters()}
    before = {name: b.clone() for name, b in module.named_buffers()}
    try:
        together = vmap(lambda w: functional_call(module, w, (tokens,)))(weights)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    if any(not torch.equal(before[name], b) for name, b in module.named_buffers()):
        return "it changes its own buffers"
    alone = check_logits(module(tokens), len(tokens), facts.answers)
    if not torch.allclose(together[0], alone, rtol=1e-3, atol=1e-4):
        return "on stacked weights it answers differently"
    return None


class _Lane:
    """Some replicas in one computation: weights as one flat tensor [R, P], so that Adam is a few large operations."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        facts: Sequence[Facts],
        betas: NDArray[np.float32],
        note: Callable[[str], None],
    ) -> None:
        self.module, self.count, self.note = modules[0], len(modules), note
        self.device = _device(self.module)
        trainable = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        if not trainable:
            raise InvalidOutput("the model has no parameters to train")
        self.shapes = {name: p.shape for name, p in trainable.items()}
        self.sizes = [p.numel() for p in trainable.values()]
        self.constants = [self._constants(module) for module in modules]
        rows = [torch.cat([p.detach().reshape(-1) for n, p in m.named_parameters() if n in trainable]) for m in modules]
        self.weights = torch.stack(rows).requires_grad_()  # [R, P]
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.betas = torch.from_numpy(betas).to(self.device, self.weights.dtype)  # [R, 2]
        self.steps = 0
        self.compiled: Callable[..., Any] | None = None
        self.slack: torch.Tensor | None = None  # of the loss at this step, [R, 1]
        self.strict = False  # whether what is seen may end the training
        self._load(facts)

    def _constants(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """What the module needs beside its trained weights: buffers and frozen parameters."""
        frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
        return {**frozen, **dict(module.named_buffers())}

    def _load(self, facts: Sequence[Facts]) -> None:
        same = all(np.array_equal(one.inputs, facts[0].inputs) for one in facts[1:])
        inputs = [facts[0].inputs] if same else [one.inputs for one in facts]
        self.inputs = torch.from_numpy(np.stack(inputs)).to(self.device)  # [1 or R, T, S]
        self.targets = torch.from_numpy(np.stack([one.targets for one in facts])).to(self.device)  # [R, T] or [R, T, A]
        if self.targets.is_floating_point():
            self.targets = self.targets.to(self.weights.dtype)
        self.prior = torch.from_numpy(np.stack([one.prior for one in facts])).to(self.device, self.weights.dtype)
        self.answers = facts[0].answers
        self.bytes_per_context = self._bytes_per_context()
        self.rows = min(len(facts[0]), max(LEAST_ROWS, int(CHUNK_BYTES / self.bytes_per_context)))

    def estimate(self, steps: int) -> float:
        """Seconds that so many exact steps would take without compiling, by the activations that they go through."""
        return steps * self.prior.shape[1] * self.bytes_per_context / EAGER_BYTES_PER_SECOND

    def compile(self) -> None:
        """From now on by torch.compile, if that works for this module; the first gradient takes its time."""
        import torch._dynamo

        # Each lane is compiled anew; past its limit dynamo would go on without compiling, and not say so.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 1024)
        self.compiled = torch.compile(self._pure_gradient, dynamic=False)

    def _bytes_per_context(self) -> float:
        """What a context leaves on the tape, all replicas together, by trying a few of them."""
        sample = self.inputs[:1, :64].expand(self.count, -1, -1)
        kept = 0

        def weigh(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal kept
            kept += tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
            logits = self._logits(self.weights, sample)
        check_logits(logits[0], sample.shape[1], self.answers)  # before it trains on anything else
        return max(kept / sample.shape[1], 1.0)

    def advance(
        self, rates: torch.Tensor, batches: Batches | None, slack: torch.Tensor | None, finishes: bool
    ) -> NDArray[np.float32]:
        steps = rates.shape[1]
        rates = rates.to(self.device, self.weights.dtype, copy=True)
        slack = None if slack is None else slack.to(self.device, self.weights.dtype)
        self.strict = finishes
        seen = torch.full((2, self.count, steps), torch.nan, device=self.device, dtype=self.weights.dtype)
        for step in range(steps):
            self.slack = None if slack is None else slack[:, step, None]
            if batches is None:
                gradient, seen[0, :, step], hits = self._exact(look=step % LOOK_EVERY == 0 or step == steps - 1)
            else:
                gradient, seen[0, :, step], hits = self._sampled(batches, step)
            if hits is not None:
                seen[1, :, step] = hits
                if finishes:
                    rates[hits >= ALL_RIGHT, step:] = 0  # what was seen to be right is kept as it is
                    if not rates[:, step:].any():
                        break
            self._adam(gradient, rates[:, step, None])
        result: NDArray[np.float32] = seen.float().cpu().numpy()
        return result

    def _exact(self, look: bool) -> _Seen:
        """Gradient, loss and accuracy over all facts, a chunk of contexts at a time where they are many."""
        gradient, losses, hits = self._part(slice(0, self.rows), look)
        for start in range(self.rows, self.prior.shape[1], self.rows):
            more = self._part(slice(start, start + self.rows), look)
            gradient, losses = gradient + more[0], losses + more[1]
            hits = None if hits is None or more[2] is None else hits + more[2]
        return gradient, losses, hits

    def _part(self, part: slice, look: bool) -> _Seen:
        return self._gradient(self.inputs[:, part], self.targets[:, part], self.prior[:, part], look)

    def _sampled(self, batches: Batches, step: int) -> _Seen:
        # contiguous, because torch.compile would compile again for other strides
        contexts = torch.from_numpy(np.ascontiguousarray(batches.contexts[:, step])).to(self.device)  # [R, batch]
        labels = torch.from_numpy(np.ascontiguousarray(batches.labels[:, step])).to(self.device)
        table = self.inputs.expand(self.count, -1, -1)
        tokens = table.gather(1, contexts[..., None].expand(-1, -1, table.shape[2]))  # [R, batch, S]
        share = torch.full_like(self.prior[:, :1], 1 / contexts.shape[1]).expand(labels.shape)
        return self._gradient(tokens, labels, share, look=True)

    def _gradient(self, tokens: torch.Tensor, targets: torch.Tensor, share: torch.Tensor, look: bool) -> _Seen:
        """Gradient [R, P], loss [R] and, when looked at, accuracy [R], with each context weighted by its share."""
        if self.compiled is not None:
            try:
                gradient, (loss, hits) = self.compiled(self.weights.detach(), tokens, targets, share, self.slack)
                self.note("compiled")
                return gradient, loss, hits
            except Exception as error:
                self.note(f"not compiled: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
                self.compiled = None
        logits = self._logits(self.weights, tokens)
        losses = cross_entropy(logits, targets)
        (gradient,) = torch.autograd.grad((share * bounded(losses, self.slack)).sum(dim=1).sum(), self.weights)
        loss = (share * losses.detach()).sum(dim=1)
        return gradient, loss, (share * hit_rate(logits.detach(), targets, self.strict)).sum(dim=1) if look else None

    def _pure_gradient(
        self,
        weights: torch.Tensor,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        share: torch.Tensor,
        slack: torch.Tensor | None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """The same as a function without effects, which is what torch.compile takes."""

        def total(weights: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
            logits = self._logits(weights, tokens)
            losses = cross_entropy(logits, targets)
            loss = (share * losses).sum(dim=1)
            return (share * bounded(losses, slack)).sum(dim=1).sum(), (
                loss,
                (share * hit_rate(logits, targets, self.strict)).sum(dim=1),
            )

        gradient: tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = grad(total, has_aux=True)(weights)
        return gradient

    def _logits(self, weights: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [R, batch, A] of all replicas; tokens [1, batch, S] are shared by all of them."""
        parts = weights.split(self.sizes, dim=1)
        named = {n: p.view(self.count, *s) for (n, s), p in zip(self.shapes.items(), parts, strict=True)}
        if self.count == 1:
            state = {**self.constants[0], **{name: p[0] for name, p in named.items()}}
            return check_form(functional_call(self.module, state, (tokens[0],)))[None]
        stacked = {**named, **self._stacked_constants()}
        shared = tokens.shape[0] == 1
        call = vmap(lambda w, t: functional_call(self.module, w, (t,)), in_dims=(0, None if shared else 0))
        return check_form(call(stacked, tokens[0] if shared else tokens))

    def _stacked_constants(self) -> dict[str, torch.Tensor]:
        if not hasattr(self, "_stacked"):
            names = self.constants[0]
            self._stacked = {name: torch.stack([one[name] for one in self.constants]) for name in names}
        return self._stacked

    @torch.no_grad()
    def _adam(self, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        """One step of Adam for all replicas, each with its own rate [R, 1] and betas."""
        self.steps += 1
        first, second = self.betas[:, :1], self.betas[:, 1:]
        self.mean.lerp_(gradient, 1 - first)
        self.square.lerp_(gradient.square(), 1 - second)
        scale = (1 - second**self.steps).sqrt()
        denominator = self.square.sqrt().div_(scale).add_(EPSILON)
        self.weights.sub_(self.mean.div(denominator).mul_(rates / (1 - first**self.steps)))

    def state(self, row: int) -> dict[str, torch.Tensor]:
        parts = self.weights.detach()[row].split(self.sizes)
        trained = {n: p.view(s).clone() for (n, s), p in zip(self.shapes.items(), parts, strict=True)}
        kept = {name: value.clone() for name, value in self.constants[row].items()}
        wanted = self.module.state_dict().keys()
        return {name: value for name, value in {**kept, **trained}.items() if name in wanted}


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in nats, [R, batch]; targets are labels [R, batch] or distributions [R, batch, A]."""
    if targets.is_floating_point():
        return -(targets * torch.log_softmax(logits, dim=-1)).sum(dim=-1)
    flat = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.view(targets.shape)


def bounded(losses: torch.Tensor, slack: torch.Tensor | None) -> torch.Tensor:
    """-log(p + slack) for losses -log p: at most -log slack, so that what is hopeless is given up."""
    return losses if slack is None else -torch.logaddexp(-losses, slack.log())


def hit_rate(logits: torch.Tensor, targets: torch.Tensor, strict: bool = True) -> torch.Tensor:
    """Probability that the largest logit is right, [R, batch]; a label that shares the largest one is wrong if strict.

    To watch a training, a cheap look without the rule for ties is enough; to end it, it is not.
    """
    if targets.is_floating_point():
        return targets.gather(-1, logits.argmax(dim=-1, keepdim=True))[..., 0]
    if not strict:
        return (logits.gather(-1, targets[..., None])[..., 0] >= logits.amax(dim=-1)).to(logits.dtype)
    best = logits >= logits.amax(dim=-1, keepdim=True)
    return (best.gather(-1, targets[..., None])[..., 0] & (best.sum(dim=-1) == 1)).to(logits.dtype)


def check_form(logits: object) -> torch.Tensor:
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point():
        raise TypeError(f"the model returned {type(logits).__name__}, not floating-point logits")
    return logits


def _device(module: nn.Module) -> torch.device:
    return next((t.device for t in [*module.parameters(), *module.buffers()]), torch.device("cpu"))
