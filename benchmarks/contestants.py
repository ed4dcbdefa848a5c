"""What the engine is compared with: the training loop that a researcher would write, and one in JAX."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class OneModulePerHead(nn.Module):
    """Attention-only transformer out of torch's own parts: one MultiheadAttention for each head."""

    def __init__(self, N: int, S: int, d: int, H: int) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(N, d), nn.Embedding(S, d)
        self.heads = nn.ModuleList(nn.MultiheadAttention(d, 1, bias=False, batch_first=True) for _ in range(H))
        self.unembed = nn.Linear(d, N, bias=False)
        self.register_buffer("mask", torch.ones(S, S, dtype=torch.bool).triu(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        stream = self.word(tokens)
        x = stream + self.position.weight
        mixed = sum(head(x, x, x, attn_mask=self.mask)[0] for head in self.heads)
        return self.unembed(stream + mixed)[:, -1]


def plain_loop(N: int, S: int, d: int, H: int, batch: int) -> Callable[[int], float]:
    """Takes so many steps as a first version of the experiment would, and returns CPU seconds."""
    tokens = torch.randint(N, (64 * batch, S))
    labels = torch.randint(N, (64 * batch,))
    loader = DataLoader(TensorDataset(tokens, labels), batch_size=batch, shuffle=True)
    model = OneModulePerHead(N, S, d, H)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = iter(loader)

    def run(steps: int) -> float:
        nonlocal batches
        start, losses, accuracies = time.process_time(), [], []
        for _ in range(steps):
            item = next(batches, None)
            if item is None:
                batches = iter(loader)
                item = next(batches)
            logits = model(item[0])
            loss = nn.functional.cross_entropy(logits, item[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            accuracies.append((logits.argmax(1) == item[1]).float().mean().item())
        return time.process_time() - start

    return run


def jax_scan(N: int, S: int, d: int, H: int, batch: int, replicas: int) -> Callable[[int], float] | None:
    """The same training with jit, vmap over replicas and scan over steps; None where JAX is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None

    def logits(p: dict[str, Any], tokens: Any) -> Any:
        """For S=2, each head's maps multiplied first and the contexts on the last axis: the fastest of five forms."""
        words = p["word"][tokens]
        read = (words + p["position"]).transpose(1, 2, 0)  # [S, d, batch]
        last, other = read[1], read[0] - read[1]
        pairs = jnp.einsum("hki,hkj->ihj", p["key"], p["query"]) / np.sqrt(d)
        wanted = jnp.einsum("ihj,jb->ihb", pairs, last)
        weight = jax.nn.sigmoid((other[:, None] * wanted).sum(0))  # [H, batch]
        written = jnp.einsum("hok,hki->oih", p["output"], p["value"])
        mixed = jnp.einsum("oih,ihb->ob", written, other[:, None] * weight) + written.sum(2) @ last
        return (words[:, 1] + mixed.T) @ p["unembed"].T

    def loss(p: dict[str, Any], tokens: Any, labels: Any) -> Any:
        out = logits(p, tokens)
        picked = jnp.take_along_axis(out, labels[:, None], 1)[:, 0]
        return (jax.nn.logsumexp(out, -1) - picked).mean()

    def step(carry: Any, item: Any) -> Any:
        p, m, v, t = carry
        value, g = jax.value_and_grad(loss)(p, *item)
        t = t + 1
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        scale = 0.01 / (1 - 0.9**t)
        p = jax.tree.map(lambda w, a, b: w - scale * a / (jnp.sqrt(b / (1 - 0.999**t)) + 1e-8), p, m, v)
        return (p, m, v, t), value

    shapes = {"word": (N, d), "position": (S, d), "unembed": (N, d), "key": (H, d, d), "query": (H, d, d),
              "value": (H, d, d), "output": (H, d, d)}  # fmt: skip
    rng = np.random.default_rng(0)
    p = {
        name: jnp.asarray(rng.normal(size=(replicas, *shape)) / np.sqrt(d), jnp.float32)
        for name, shape in shapes.items()
    }
    zeros = jax.tree.map(jnp.zeros_like, p)
    carry = (p, zeros, zeros, jnp.zeros(replicas))
    train = jax.jit(jax.vmap(lambda c, x: jax.lax.scan(step, c, x)))

    def run(steps: int) -> float:
        nonlocal carry
        tokens = jnp.asarray(rng.integers(N, size=(replicas, steps, batch, S)))
        labels = jnp.asarray(rng.integers(N, size=(replicas, steps, batch)))
        start = time.process_time()
        carry, losses = train(carry, (tokens, labels))
        losses.block_until_ready()
        return time.process_time() - start

    return run


class PlainPlugin(nn.Module):
    """What a third party might bring: attention by hand, an MLP and layer norms, with no thought of speed."""

    def __init__(self, N: int, S: int, d: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.word, self.position = nn.Embedding(N, d), nn.Embedding(S, d)
        self.mixes, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.first, self.second = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.norm_1, self.norm_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.unembed = nn.Linear(d, N)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.word(tokens) + self.position.weight
        q, k, v = self.mixes(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        x = x + self.second(nn.functional.gelu(self.first(self.norm_2(x))))
        return self.unembed(x[:, -1])
