"""Training any nn.Module: each replica as the module that it is, or several trainings of one trial as one computation.

A replica that is computed beside others differs from the same replica alone in its last digits. So only trainings that
always come together are batched: those with the same key, such as the settings that are tried on one trial's facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, vjp, vmap

from membench.engine.randomness import drawn_from
from membench.engine.trainer import EPSILON, Batches, Progress
from membench.interface.facts import Facts
from membench.measure.evaluate import InvalidOutput, check_logits, logits_of

LOOK_EVERY = 10  # steps between looks at the accuracy when all facts are used: it costs as much as the loss
TRIED = 64  # contexts that show whether replicas can be batched
LEAST_ROWS = 64  # contexts at once, however large they are
# A guess and not a clock, so that the decision to compile, which changes last digits, is the same in every run.
EAGER_BYTES_PER_SECOND = 5e8  # activations that steps get through without compiling, roughly
COMPILE_PAYS = 100.0  # seconds of such work, of one replica
ALL_RIGHT = 1 - 1e-6  # an accuracy that can be nothing else, whatever the rounding of its sum
CHUNK_BYTES = 256 << 20  # activations kept for one backward pass; more contexts than fit are accumulated exactly


# What torch.func says, and what it means for a module.
OBSTACLES = {
    "randomness": "its forward draws random numbers at every step",
    ".item()": "its forward branches on the values of a tensor, or reads them",
    "data-dependent": "its forward branches on the values of a tensor, or reads them",
    "inplace": "its forward writes into a tensor in place",
    "setup_context": "it has an autograd.Function without setup_context",
    "requires_grad_": "its forward takes gradients by torch.autograd",
    "escaped": "its forward keeps a tensor for later, as checkpoints do",
}

_Seen = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # gradient, loss, accuracy
_State = Mapping[str, torch.Tensor]


class GeneralTrainer:
    """A Trainer for modules that nothing is known about, which it takes over: their weights are those in training."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        facts: Sequence[Facts],
        betas: NDArray[np.float32],
        note: Callable[[str], None] = lambda text: None,
        compiling: str = "off",
        planned: int = 0,
        keys: Sequence[int] | None = None,
    ) -> None:
        """`compiling` is on, off or auto: compile if the planned steps would take minutes without.

        Neighbours with the same key may be trained in one computation; without keys, all of them. What is random in
        a module's training is drawn from its key.
        """
        for module in modules:
            module.train()
            _look_up_by_index(module)
        self.replicas = len(modules)
        keys = [0] * self.replicas if keys is None else keys
        replicas = [_Replica(*each) for each in zip(range(self.replicas), modules, facts, betas, keys, strict=True)]
        self._lanes = [lane for group in _groups(replicas) for lane in _lanes(group, note)]
        compiled: dict[int, Callable[..., Any]] = {}  # by how many replicas it is for
        for lane in self._lanes:
            if compiling == "on" or (compiling == "auto" and lane.estimate(planned) > COMPILE_PAYS):
                lane.compile(compiled, facts[lane.rows[0]])

    def advance(
        self,
        rates: NDArray[np.float32],
        batches: Batches | None = None,
        slack: NDArray[np.float32] | None = None,
        finishes: bool = False,
    ) -> Progress:
        seen = np.full((2, *rates.shape), np.nan, dtype=np.float32)
        self._lanes = [part for lane in self._lanes for part in lane.parted(np.asarray(rates[lane.rows].any(axis=1)))]
        for lane in self._lanes:
            rows = lane.rows
            if rates[rows].any():
                chosen = None if batches is None else Batches(batches.contexts[rows], batches.labels[rows])
                own = None if slack is None else torch.from_numpy(slack[rows])
                with drawn_from(lane.key, lane.steps):
                    seen[:, rows] = lane.advance(torch.from_numpy(rates[rows]), chosen, own, finishes)
        return Progress(loss=seen[0], accuracy=seen[1])

    def state(self, replica: int) -> dict[str, torch.Tensor]:
        lane, row = self._place(replica)
        return lane.state(row)

    def ask(self, replica: int, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [batch, A] of one replica's module as it stands now, as it answers when it is not in training."""
        lane, row = self._place(replica)
        was_training = lane.module.training
        lane.module.eval()
        try:
            with torch.no_grad():
                return logits_of(lane.ask(row, tokens.to(lane.device)))
        finally:
            lane.module.train(was_training)

    def _place(self, replica: int) -> tuple[_Lane, int]:
        lane = next(lane for lane in self._lanes if replica in lane.rows)
        return lane, lane.rows.index(replica)


class _Table(nn.Embedding):
    """An embedding by indexing: the same numbers, bit for bit, and on a CPU a gradient for a quarter of the time."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.weight[input] if input.dtype == torch.int64 else super().forward(input)


def _look_up_by_index(module: nn.Module) -> None:
    """Where an embedding does nothing but look up."""
    if _device(module).type != "cpu":
        return
    for part in module.modules():
        if type(part) is nn.Embedding:
            plain = part.padding_idx is None and part.max_norm is None
            if plain and not part.sparse and not part.scale_grad_by_freq:
                part.__class__ = _Table


class _Replica(NamedTuple):
    row: int  # among the trainer's replicas
    module: nn.Module
    facts: Facts
    betas: NDArray[np.float32]
    key: int


def _groups(replicas: Sequence[_Replica]) -> list[list[_Replica]]:
    """Those of one key; on a GPU, which few replicas do not fill, all of them."""
    groups: dict[int | None, list[_Replica]] = {}
    for one in replicas:
        groups.setdefault(one.key if _device(one.module).type == "cpu" else None, []).append(one)
    return list(groups.values())


def _lanes(group: Sequence[_Replica], note: Callable[[str], None]) -> list[_Lane]:
    """One for all of them if that works, else one for each."""
    if len(group) > 1:
        reason = why_not_batched(group[0].module, group[0].facts)
        if reason is None:
            try:
                together = _Together(group, note)
                together.try_out()
                return [together]
            except InvalidOutput:
                raise
            except Exception as error:
                reason = _in_words(error)
        note(f"replicas trained one by one: {reason}")
    return [_Alone([one], note) for one in group]


def why_not_batched(module: nn.Module, facts: Facts) -> str | None:
    """The reason why torch.func cannot run this module on stacked weights, found by trying; None when it can."""
    reason = _known_obstacle(module)
    if reason:
        return reason
    tokens = torch.from_numpy(facts.inputs[:: -(-len(facts) // TRIED)]).to(_device(module))
    weights = {name: torch.stack([p.detach()] * 2).requires_grad_() for name, p in _trainable(module).items()}
    with _undone(module) as changed:
        try:
            together = vmap(lambda w: logits_of(functional_call(module, w, (tokens,))))(weights)
            torch.autograd.grad(together.sum(), list(weights.values()), allow_unused=True)
        except InvalidOutput:
            raise
        except Exception as error:
            return _in_words(error)
        if names := changed():
            return f"its forward changes its own '{names[0]}', so that it keeps state between calls"
    with _undone(module), torch.no_grad():
        alone = check_logits(module(tokens), len(tokens), facts.answers)
    rounding = 8 * torch.finfo(alone.dtype).eps
    if not torch.allclose(together[0], alone, rtol=max(1e-3, rounding), atol=max(1e-4, rounding)):
        return "on stacked weights it answers differently"
    return None


def _known_obstacle(module: nn.Module) -> str | None:
    """What is known not to work on stacked weights, or to fail there only later."""
    first: dict[int, str] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            return f"'{name}' is dropout, which is random at every step"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            return f"'{name}' is batch norm, which changes its own statistics"
        if first.setdefault(id(part), name) != name and next(part.parameters(), None) is not None:
            return f"'{name}' and '{first[id(part)]}' are one module, which torch.func cannot put other weights into"
    if names := [name for name, p in module.named_parameters() if p.is_complex()]:
        return f"'{names[0]}' is complex"
    return None


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split())
    known = (words for part, words in OBSTACLES.items() if part in text)
    return next(known, f"{type(error).__name__}: {text[:160]}")


@contextmanager
def _undone(module: nn.Module) -> Iterator[Callable[[], list[str]]]:
    """What is tried inside leaves buffers and attributes as they were; yields what tells which of them changed."""
    own = vars(nn.Module()).keys()
    parts = dict(module.named_modules())
    attributes = {name: {k: v for k, v in vars(part).items() if k not in own} for name, part in parts.items()}
    buffers = {name: dict(part._buffers) for name, part in parts.items()}
    content = {id(b): b.clone() for some in buffers.values() for b in some.values() if b is not None}

    def changed() -> list[str]:
        found = []
        for name, part in parts.items():
            now = {**{k: v for k, v in vars(part).items() if k not in own}, **part._buffers}
            before = {**attributes[name], **buffers[name]}
            others = [key for key in now if now[key] is not before.get(key)]
            others += [k for k, b in buffers[name].items() if b is not None and not torch.equal(b, content[id(b)])]
            found += [f"{name}.{key}" if name else key for key in others]
        return found

    try:
        yield changed
    finally:
        for name, part in parts.items():
            for key in [key for key in vars(part) if key not in own]:
                del part.__dict__[key]
            part.__dict__.update(attributes[name])
            part._buffers.clear()
            part._buffers.update(buffers[name])
            for buffer in buffers[name].values():
                if buffer is not None and not torch.equal(buffer, content[id(buffer)]):
                    buffer.detach().copy_(content[id(buffer)])


class _Lane:
    """Some replicas in one computation: weights as one flat tensor [R, P], so that Adam is a few large operations."""

    def __init__(self, replicas: Sequence[_Replica], note: Callable[[str], None]) -> None:
        self.rows, modules, facts, betas, keys = map(list, zip(*replicas, strict=True))
        self.module, self.count, self.note, self.key = modules[0], len(modules), note, keys[0]
        self.device = _device(self.module)
        trainable = _trainable(self.module)
        if not trainable:
            raise InvalidOutput("the model has no parameters to train")
        # Complex ones first: seen as pairs of real numbers, they have to start at an even place.
        self.forms = dict(sorted(trainable.items(), key=lambda item: not item[1].is_complex()))
        self.sizes = [_as_real(p).numel() for p in self.forms.values()]
        flat = [_flat(_trainable(module), self.forms) for module in modules]
        self.weights = torch.stack(flat).requires_grad_()  # [R, P]
        # What is summed over contexts or steps has 24 bits at least, however few the weights have.
        self.number = torch.promote_types(self.weights.dtype, torch.float32)
        self.mean, self.square = (torch.zeros_like(self.weights, dtype=self.number) for _ in range(2))
        self.betas = np.array(betas, dtype=np.float64)  # [R, 2]
        self.fractions = torch.from_numpy(1 - self.betas).to(self.device, self.number).split(1, dim=1)
        self.steps = 0
        self.compiled: Callable[..., Any] | None = None
        self.slack: torch.Tensor | None = None  # of the loss at this step, [R, 1]
        self.strict = False  # whether what is seen may end the training
        self.every_position = False  # whether the module answers at each of them
        self._start(modules)
        self._load(facts)

    def _start(self, modules: Sequence[nn.Module]) -> None:
        raise NotImplementedError

    def state(self, row: int) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    def ask(self, row: int, tokens: torch.Tensor) -> object:
        raise NotImplementedError

    def _constants(self) -> Sequence[_State] | _State:
        raise NotImplementedError

    def _logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [R, batch, A] of all replicas; tokens [1, batch, S] are shared by all of them."""
        raise NotImplementedError

    def _differentiated(self, logits: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        """The gradient [R, P] of a loss that has this slope at the logits."""
        raise NotImplementedError

    def _load(self, facts: Sequence[Facts]) -> None:
        same = all(np.array_equal(one.inputs, facts[0].inputs) for one in facts[1:])
        inputs = [facts[0].inputs] if same else [one.inputs for one in facts]
        self.inputs = torch.from_numpy(np.stack(inputs)).to(self.device)  # [1 or R, T, S]
        self.targets = torch.from_numpy(np.stack([one.targets for one in facts])).to(self.device)  # [R, T] or [R, T, A]
        if self.targets.is_floating_point():
            self.targets = self.targets.to(self.number)
        self.prior = torch.from_numpy(np.stack([one.prior for one in facts])).to(self.device, self.number)
        self.answers = facts[0].answers
        self.bytes_per_context = self._bytes_per_context()
        if self.every_position:
            self.note("the model answers at every position, and the last one is measured")
        self.rows_at_once = min(len(facts[0]), max(LEAST_ROWS, int(CHUNK_BYTES / self.bytes_per_context)))

    def parted(self, active: NDArray[np.bool_]) -> list[_Lane]:
        """The same replicas, those that are at rest apart from those that go on."""
        return [self]

    def try_out(self) -> None:
        """A gradient over all facts, for what fails on some of them only."""
        self._exact(look=False)

    def estimate(self, steps: int) -> float:
        """Seconds that so many exact steps would take without compiling, by the activations that they go through."""
        return steps * self.prior.shape[1] * self.bytes_per_context / EAGER_BYTES_PER_SECOND

    def compile(self, shared: dict[int, Callable[..., Any]], facts: Facts) -> None:
        """From now on by torch.compile, if that works for this module; the first gradient takes its time.

        Lanes of as many replicas share what was compiled, whose weights are arguments.
        """
        import torch._dynamo
        import torch._inductor.config

        if reason := why_not_batched(self.module, facts):
            self.note(f"not compiled: {reason}")
            return
        # A pool of compilers would outlive a worker that is ended; what is done in parallel here are processes.
        torch._inductor.config.compile_threads = 1
        # Past its limit dynamo would go on without compiling, and not say so.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 1024)
        if self.count not in shared:
            shared[self.count] = torch.compile(self._pure_gradient, dynamic=False)
        self.compiled = shared[self.count]

    def _bytes_per_context(self) -> float:
        """What a context leaves on the tape, all replicas together, by trying a few of them."""
        sample = self.inputs[:1, :64]
        with _undone(self.module), drawn_from(self.key):
            try:
                kept, logits = _weighed(lambda: self._logits(sample))
            except InvalidOutput:
                raise
            except Exception:  # a gradient inside forward does not take the hooks that weigh
                kept, logits = 0, self._logits(sample)
                kept = _graph_bytes(logits)
            check_logits(logits[0].detach(), sample.shape[1], self.answers)  # before it trains on anything else
        return max(kept / sample.shape[1], 1.0)

    def advance(
        self, rates: torch.Tensor, batches: Batches | None, slack: torch.Tensor | None, finishes: bool
    ) -> NDArray[np.float32]:
        steps = rates.shape[1]
        rates = rates.to(self.device, self.number)
        slack = None if slack is None else slack.to(self.device, self.number)
        self.strict = finishes
        first, second = self._corrections(steps)
        sizes, roots = rates.T[..., None] / first, second.unbind()  # [steps, R, 1], and [R, 1] for each step
        seen = torch.full((2, self.count, steps), torch.nan, device=self.device, dtype=self.number)
        for step in range(steps):
            self.slack = None if slack is None else slack[:, step, None]
            if batches is None:
                gradient, seen[0, :, step], hits = self._exact(look=step % LOOK_EVERY == 0 or step == steps - 1)
            else:
                gradient, seen[0, :, step], hits = self._sampled(batches, step)
            if hits is not None:
                seen[1, :, step] = hits
                if finishes:
                    sizes[step:, hits >= ALL_RIGHT] = 0  # what was seen to be right is kept as it is
                    if not sizes[step:].any():
                        break
            self._adam(gradient, sizes[step], roots[step])
        result: NDArray[np.float32] = seen.float().cpu().numpy()
        return result

    def _exact(self, look: bool) -> _Seen:
        """Gradient, loss and accuracy over all facts, a chunk of contexts at a time where they are many."""
        at_once = self.rows_at_once
        gradient, losses, hits = self._part(slice(0, at_once), look)
        gradient = gradient if at_once >= self.prior.shape[1] else gradient.clone()  # the next one may take its place
        for start in range(at_once, self.prior.shape[1], at_once):
            more = self._part(slice(start, start + at_once), look)
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
                gradient, (loss, hits) = self.compiled(
                    self.weights.detach(), self._constants(), tokens, targets, share, self.slack, self.strict
                )
                self.note("compiled")
                return gradient, loss, hits
            except Exception as error:
                self.note(f"not compiled: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
                self.compiled = None
        logits = self._logits(tokens)
        seen = logits.detach().to(self.number)
        loss, slope = loss_and_slope(seen, targets, share, self.slack)
        gradient = self._differentiated(logits, slope.to(logits.dtype))
        return gradient, loss, (share * hit_rate(seen, targets, self.strict)).sum(dim=1) if look else None

    def _pure_gradient(
        self,
        weights: torch.Tensor,
        constants: Any,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        share: torch.Tensor,
        slack: torch.Tensor | None,
        strict: bool,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """The same as a function without effects, which is what torch.compile takes."""
        logits, backward, *_ = vjp(lambda weights: self._pure_logits(weights, constants, tokens), weights)
        seen = logits.to(self.number)
        loss, slope = loss_and_slope(seen, targets, share, slack)
        (gradient,) = backward(slope.to(logits.dtype))
        return gradient, (loss, (share * hit_rate(seen, targets, strict)).sum(dim=1))

    def _pure_logits(self, weights: torch.Tensor, constants: Any, tokens: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _call(self, state: _State, tokens: torch.Tensor) -> torch.Tensor:
        return self._answer(functional_call(self.module, dict(state), (tokens,)))

    def _answer(self, output: object) -> torch.Tensor:
        logits = logits_of(output)
        if logits is not output and not self.every_position:
            self.every_position = True
        return logits

    def _named(self, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters of each replica, [R, ..], as views of the weights."""
        parts = weights.split(self.sizes, dim=1)
        return {name: _shaped(part, form) for (name, form), part in zip(self.forms.items(), parts, strict=True)}

    def _corrections(self, steps: int) -> torch.Tensor:
        """What Adam divides its average and its root at each step by, because they start from 0: [2, steps, R, 1]."""
        count = self.steps + 1 + np.arange(steps)
        found = 1 - self.betas.T[:, None, :, None] ** count[:, None, None]
        return torch.from_numpy(np.stack([found[0], np.sqrt(found[1])])).to(self.device, self.number)

    @torch.no_grad()
    def _adam(self, gradient: torch.Tensor, size: torch.Tensor, root: torch.Tensor) -> None:
        """One step of Adam for all replicas, each with its own betas, size of the step [R, 1] and correction [R, 1]."""
        self.steps += 1
        gradient = gradient.to(self.number)
        self.mean.lerp_(gradient, self.fractions[0])
        self.square.lerp_(gradient.square(), self.fractions[1])
        denominator = self.square.sqrt().div_(root).add_(EPSILON)
        self.weights.sub_(self.mean.div(denominator).mul_(size))


class _Alone(_Lane):
    """One replica, as the module that it is: whatever it does in training, it does here."""

    def _start(self, modules: Sequence[nn.Module]) -> None:
        self.gradient = torch.zeros_like(self.weights, requires_grad=False)
        weights, gradients = self._named(self.weights.detach()), self._named(self.gradient)
        for name, parameter in _trainable(self.module).items():
            # views, so that Adam moves them all at once, and so that backward leaves its gradients in one place
            parameter.data, parameter.grad = weights[name][0], gradients[name][0]

    def _logits(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._answer(self.module(tokens[0]))[None]

    def _differentiated(self, logits: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        self.gradient.zero_()
        logits.backward(slope)  # not autograd.grad, which checkpoints inside the module may refuse
        return self.gradient

    def _pure_logits(self, weights: torch.Tensor, constants: Any, tokens: torch.Tensor) -> torch.Tensor:
        named = {name: value[0] for name, value in self._named(weights).items()}
        return self._call({**constants, **named}, tokens[0])[None]

    def _constants(self) -> _State:
        return _constants(self.module)

    def state(self, row: int) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    def ask(self, row: int, tokens: torch.Tensor) -> object:
        return self.module(tokens)


class _Together(_Lane):
    """Several replicas by torch.func, on stacked weights."""

    def _start(self, modules: Sequence[nn.Module]) -> None:
        self.constants = [_constants(module) for module in modules]
        names = self.constants[0]
        self.stacked = {name: torch.stack([one[name] for one in self.constants]) for name in names}
        # a further name of a shared tensor, and its first one
        first: dict[int, str] = {}
        state = self.module.state_dict(keep_vars=True)
        self.same = {name: first.setdefault(id(value), name) for name, value in state.items()}

    def parted(self, active: NDArray[np.bool_]) -> list[_Lane]:
        if (
            self.compiled is not None or active.all() or not active.any()
        ):  # compiling again would cost more than it saves
            return [self]
        return [self._only(np.flatnonzero(active)), self._only(np.flatnonzero(~active))]

    def _only(self, index: NDArray[np.int64]) -> _Together:
        """Some of the replicas, as they stand."""
        lane, chosen = copy(self), torch.from_numpy(index).to(self.device)
        lane.rows, lane.constants = [self.rows[i] for i in index], [self.constants[i] for i in index]
        lane.count, lane.betas = len(index), self.betas[index]
        lane.weights = self.weights.detach()[chosen].requires_grad_()
        lane.mean, lane.square = self.mean[chosen], self.square[chosen]
        lane.fractions = tuple(one[chosen] for one in self.fractions)
        lane.stacked = {name: value[chosen] for name, value in self.stacked.items()}
        lane.inputs = self.inputs if len(self.inputs) == 1 else self.inputs[chosen]
        lane.targets, lane.prior = self.targets[chosen], self.prior[chosen]
        return lane

    def _logits(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._pure_logits(self.weights, self.stacked, tokens)

    def _pure_logits(self, weights: torch.Tensor, constants: Any, tokens: torch.Tensor) -> torch.Tensor:
        shared = tokens.shape[0] == 1
        call = vmap(self._call, in_dims=(0, None if shared else 0))
        logits: torch.Tensor = call({**constants, **self._named(weights)}, tokens[0] if shared else tokens)
        return logits

    def _differentiated(self, logits: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(logits, self.weights, slope)
        return gradient

    def _constants(self) -> _State:
        return self.stacked

    def _all(self, row: int) -> dict[str, torch.Tensor]:
        return {**self.constants[row], **{n: p[row] for n, p in self._named(self.weights.detach()).items()}}

    def state(self, row: int) -> dict[str, torch.Tensor]:
        everything = self._all(row)
        return {name: everything[first].detach().clone() for name, first in self.same.items()}

    def ask(self, row: int, tokens: torch.Tensor) -> object:
        return functional_call(self.module, self._all(row), (tokens,))


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _constants(module: nn.Module) -> dict[str, torch.Tensor]:
    """What a module needs beside its trained weights: buffers and frozen parameters."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return {**frozen, **dict(module.named_buffers())}


def _as_real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.detach().resolve_conj()) if value.is_complex() else value.detach()


def _flat(parameters: Mapping[str, torch.Tensor], order: Mapping[str, Any]) -> torch.Tensor:
    return torch.cat([_as_real(parameters[name]).reshape(-1) for name in order])


def _shaped(part: torch.Tensor, form: torch.Tensor) -> torch.Tensor:
    """A parameter of each replica, [R, ..], from its numbers [R, size]."""
    if form.is_complex():
        return torch.view_as_complex(part.view(len(part), *form.shape, 2))
    return part.view(len(part), *form.shape)


def _weighed(call: Callable[[], torch.Tensor]) -> tuple[int, torch.Tensor]:
    """Bytes that are kept for the backward pass, and the result."""
    kept = 0

    def weigh(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
        result = call()
    return kept, result


def _graph_bytes(result: torch.Tensor) -> int:
    """The same, roughly, by the number of steps back that there are, each with a tensor as large as the result."""
    seen: set[Any] = set()
    waiting = [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(before for before, _ in node.next_functions)
    return len(seen) * result.numel() * result.element_size()


def loss_and_slope(
    logits: torch.Tensor, targets: torch.Tensor, share: torch.Tensor, slack: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy in nats, [R], and the slope [R, batch, A] at the logits of what is minimised.

    Targets are labels [R, batch] or distributions [R, batch, A], and each context has its share [R, batch]. Minimised
    is the cross-entropy -log p or, with slack [R, 1], -log(p + slack): at most -log slack, so that what is hopeless is
    given up.
    """
    logs = torch.log_softmax(logits, dim=-1)
    if targets.is_floating_point():
        losses = -(targets * logs).sum(dim=-1)
        slope = logs.exp_().mul_(targets.sum(dim=-1, keepdim=True)).sub_(targets)
    else:
        labels = targets[..., None]
        losses = -logs.gather(-1, labels)[..., 0]
        slope = logs.exp_().scatter_add_(-1, labels, torch.full_like(losses[..., None], -1))
    pull = share if slack is None else share * torch.sigmoid(-losses - slack.log())  # p / (p + slack)
    return (share * losses).sum(dim=-1), slope.mul_(pull[..., None])


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


def _device(module: nn.Module) -> torch.device:
    return next((t.device for t in [*module.parameters(), *module.buffers()]), torch.device("cpu"))
