"""A decoder-only transformer with a cache of keys and values, written as modules.

One build serves a prompt of any length (`prefill`) and one token at a time after it (`decode`): the
number of tokens is a symbolic dimension, and the caches grow without being copied at each step.
Each step is compared with a plain numpy version that computes everything anew, and with torch where
it is installed.

    python examples/transformer_kv_cache.py [--layers 4] [--dim 256] [--tokens 32]
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np

from relaxvm import tir
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn import Tensor, op, spec


@dataclass(frozen=True)
class Config:
    """Sizes of a model; `heads` query heads share `kv_heads` heads of keys and values."""

    vocab: int = 1000
    layers: int = 4
    dim: int = 256
    heads: int = 8
    kv_heads: int = 2
    hidden: int = 688
    reserve: int = 64  # rows that a cache has room for before it grows
    theta: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Features of one head."""
        return self.dim // self.heads


# -- the model -------------------------------------------------------------------------------------


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding: x [n, heads, d], cos and sin [n, 1, d / 2]."""
    a, b = op.chunk(x, 2, dim=-1)
    return op.concat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    """Attention of new tokens to all tokens so far, whose keys and values are in the caches."""

    def __init__(self, c: Config):
        self.c = c
        shared = c.kv_heads * c.head_dim
        self.qkv = nn.MultiLinear(c.dim, [c.dim, shared, shared], bias=False)
        self.out = nn.Linear(c.dim, c.dim, bias=False)
        self.keys = nn.KVCache(c.reserve, [c.kv_heads, c.head_dim])
        self.values = nn.KVCache(c.reserve, [c.kv_heads, c.head_dim])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, total: tir.Var) -> Tensor:
        c, n = self.c, x.shape[0]
        q, k, v = self.qkv(x)
        q = rotate(q.reshape(n, c.heads, c.head_dim), cos, sin)
        self.keys.append(rotate(k.reshape(n, c.kv_heads, c.head_dim), cos, sin))
        self.values.append(v.reshape(n, c.kv_heads, c.head_dim))
        made = op.scaled_dot_product_attention(
            op.unsqueeze(q, 0),
            self.keys.view(total, (1, total, c.kv_heads, c.head_dim)),
            self.values.view(total, (1, total, c.kv_heads, c.head_dim)),
            causal_mask="BottomRight",  # the last new token sees every token
        )
        return self.out(made.reshape(n, c.dim))


class FeedForward(nn.Module):
    """SwiGLU: a gate, and what it lets through."""

    def __init__(self, c: Config):
        self.gate_up = nn.MultiLinear(c.dim, [c.hidden, c.hidden], bias=False)
        self.down = nn.Linear(c.hidden, c.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x)
        return self.down(op.silu(gate) * up)


class Block(nn.Module):
    """One layer."""

    def __init__(self, c: Config):
        self.norm1 = nn.RMSNorm(c.dim, -1, c.eps, bias=False)
        self.attention = Attention(c)
        self.norm2 = nn.RMSNorm(c.dim, -1, c.eps, bias=False)
        self.feed_forward = FeedForward(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, total: tir.Var) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin, total)
        return x + self.feed_forward(self.norm2(x))


class Transformer(nn.Module):
    """Tokens [n], the last of which is number `total`, to logits of the next one [1, vocab]."""

    def __init__(self, c: Config):
        self.c = c
        self.embed = nn.Embedding(c.vocab, c.dim)
        self.blocks = nn.ModuleList([Block(c) for _ in range(c.layers)])
        self.norm = nn.RMSNorm(c.dim, -1, c.eps, bias=False)
        self.head = nn.Linear(c.dim, c.vocab, bias=False)

    def forward(self, tokens: Tensor, total: tir.Var) -> Tensor:
        c, n = self.c, tokens.shape[0]
        place = op.arange(total - n, total, dtype="float32")
        power = op.arange(0, c.head_dim // 2, dtype="float32") * (-2.0 / c.head_dim)
        turn = op.unsqueeze(place, 1) * op.exp(power * math.log(c.theta))
        cos, sin = op.unsqueeze(op.cos(turn), 1), op.unsqueeze(op.sin(turn), 1)
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin, total)
        last = op.take(x, op.arange(n - 1, n, dtype="int64"), axis=0)
        return self.head(self.norm(last))

    def prefill(self, tokens: Tensor, total: tir.Var) -> Tensor:
        """A prompt of any length."""
        return self(tokens, total)

    def decode(self, tokens: Tensor, total: tir.Var) -> Tensor:
        """One token."""
        return self(tokens, total)


SPEC = {
    "prefill": {"tokens": spec.Tensor(["n"], "int32"), "total": int},
    "decode": {"tokens": spec.Tensor([1], "int32"), "total": int},
}


def make_model(c: Config, seed: int = 0) -> Transformer:
    """A model with random weights."""
    rng = np.random.default_rng(seed)
    model = Transformer(c)
    for param in model.parameters():
        scale = 1.0 if len(param.shape) == 1 else param.shape[-1] ** -0.5
        value = rng.standard_normal(param.shape) * scale
        param.data = (value + (len(param.shape) == 1)).astype(param.dtype)
    return model


def transformer_module(c: Config):
    """The model's functions and its parameters by name, for whoever wants the graph."""
    return make_model(c).export(SPEC)


# -- what it should give ---------------------------------------------------------------------------


def numpy_logits(c: Config, w: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """The logits of the token after `tokens`, with everything computed anew in float64."""
    n, group = len(tokens), c.heads // c.kv_heads
    w = {name: value.astype("float64") for name, value in w.items()}

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c.eps) * w[name]

    def turned(x):
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    turn = np.arange(n)[:, None] * c.theta ** (-2.0 / c.head_dim * np.arange(c.head_dim // 2))
    cos, sin = np.cos(turn)[:, None], np.sin(turn)[:, None]
    x = w["embed.weight"][tokens]
    for i in range(c.layers):
        at = f"blocks.{i}."
        qkv = norm(x, at + "norm1.weight") @ w[at + "attention.qkv.weight"].T
        q, k, v = np.split(qkv, [c.dim, c.dim + c.kv_heads * c.head_dim], -1)
        q = turned(q.reshape(n, c.heads, -1))
        k = np.repeat(turned(k.reshape(n, c.kv_heads, -1)), group, 1)
        v = np.repeat(v.reshape(n, c.kv_heads, -1), group, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(c.head_dim)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", share, v).reshape(n, c.dim)
        x = x + mixed @ w[at + "attention.out.weight"].T
        hidden = norm(x, at + "norm2.weight") @ w[at + "feed_forward.gate_up.weight"].T
        gate, up = np.split(hidden, 2, -1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "feed_forward.down.weight"].T
    return norm(x[-1:], "norm.weight") @ w["head.weight"].T


def torch_logits(c: Config, w: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray | None:
    """The same from torch, or None where it is not installed."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        return None
    n = len(tokens)
    weight = {name: torch.from_numpy(value) for name, value in w.items()}

    def norm(x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c.eps) * weight[name]

    def turned(x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    power = torch.arange(c.head_dim // 2) * (-2.0 / c.head_dim)
    turn = torch.arange(n)[:, None] * c.theta**power
    cos, sin = turn.cos()[:, None], turn.sin()[:, None]
    x = weight["embed.weight"][torch.from_numpy(tokens).long()]
    for i in range(c.layers):
        at = f"blocks.{i}."
        qkv = F.linear(norm(x, at + "norm1.weight"), weight[at + "attention.qkv.weight"])
        q, k, v = qkv.split([c.dim] + [c.kv_heads * c.head_dim] * 2, -1)
        q, k, v = (t.reshape(n, -1, c.head_dim) for t in (q, k, v))
        q, k = turned(q), turned(k)
        k, v = (t.repeat_interleave(c.heads // c.kv_heads, 1) for t in (k, v))
        parts = [t.transpose(0, 1)[None] for t in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)[0].transpose(0, 1)
        x = x + F.linear(mixed.reshape(n, c.dim), weight[at + "attention.out.weight"])
        hidden = F.linear(norm(x, at + "norm2.weight"), weight[at + "feed_forward.gate_up.weight"])
        gate, up = hidden.chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, weight[at + "feed_forward.down.weight"])
    return F.linear(norm(x[-1:], "norm.weight"), weight["head.weight"]).numpy()


# -- running it ------------------------------------------------------------------------------------


def generate(run, prompt: np.ndarray, count: int):
    """The `count` likeliest tokens after `prompt`, and each step's logits and seconds."""
    run.reset()
    text, steps = list(prompt), []
    begin = time.perf_counter()
    logits = run["prefill"](prompt.astype("int32"), len(text))
    steps.append((logits, time.perf_counter() - begin))
    for _ in range(count - 1):
        text.append(int(logits[0].argmax()))
        begin = time.perf_counter()
        logits = run["decode"](np.array(text[-1:], "int32"), len(text))
        steps.append((logits, time.perf_counter() - begin))
    text.append(int(logits[0].argmax()))
    return np.array(text), steps


def main(argv: list[str] | None = None) -> None:
    """Build, generate from prompts of several lengths, compare, and say how fast it was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=Config.layers)
    parser.add_argument("--dim", type=int, default=Config.dim)
    parser.add_argument("--tokens", type=int, default=32, help="to generate for each prompt")
    args = parser.parse_args(argv)
    hidden = -(-args.dim * 8 // 3 // 16) * 16
    c = Config(layers=args.layers, dim=args.dim, hidden=hidden, reserve=16)
    model = make_model(c)
    weights = {name: param.data.numpy() for name, param in model.named_parameters()}

    begin = time.perf_counter()
    run = model.jit(SPEC)
    print(f"{c.layers} layers of {c.dim} features, built in {time.perf_counter() - begin:.1f} s")

    rng = np.random.default_rng(1)
    for length in (1, 5, 23):
        prompt = rng.integers(0, c.vocab, length)
        text, steps = generate(run, prompt, args.tokens)
        worst = 0.0
        for i, (logits, _) in enumerate(steps):
            wanted = numpy_logits(c, weights, text[: length + i])
            np.testing.assert_allclose(logits, wanted, rtol=2e-3, atol=2e-3)
            worst = max(worst, float(np.abs(logits - wanted).max()))
        other = torch_logits(c, weights, text[:-1])
        if other is not None:
            np.testing.assert_allclose(steps[-1][0], other, rtol=2e-3, atol=2e-3)
        seconds = sorted(s for _, s in steps[1:])
        rate = f", {1 / seconds[len(seconds) // 2]:.0f} tokens/s after it" if seconds else ""
        print(
            f"prompt of {length}: {length / steps[0][1]:.0f} tokens/s{rate}; largest difference "
            f"from numpy {worst:.1e}; the caches hold {len(run.state[0])} tokens"
        )
    checked = "numpy" if torch_logits(c, weights, np.array([1])) is None else "numpy and torch"
    print(f"all equal to {checked}")


if __name__ == "__main__":
    main()
