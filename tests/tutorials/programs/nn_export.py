"""nn.Module: parameters, containers, symbolic sizes, state (a cache), loop functions of one's
own, external functions, several methods in one export.
"""

import numpy as np
import tvm
from tvm import relax, te, tir
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import Tensor, op, spec
from tvm.script import tir as T


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, dtype: str = "float32"):
        super().__init__()
        self.gate_up_proj = nn.Linear(dim, 2 * hidden_dim, bias=False, dtype=dtype)
        self.down_proj = nn.Linear(hidden_dim, dim, bias=False, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        x1, x2 = op.split(self.gate_up_proj(x), 2, axis=-1)
        return self.down_proj(op.silu(x1) * x2)


class Block(nn.Module):
    def __init__(self, dim: int):
        self.norm = nn.RMSNorm(dim, -1, 1e-5, bias=False)
        self.mlp = FeedForward(dim, 2 * dim)
        self.scale = nn.Parameter((dim,), "float32")

    def forward(self, x: Tensor):
        return x + self.mlp(self.norm(x)) * self.scale


class Model(nn.Module):
    def __init__(self, vocab: int = 11, dim: int = 8, num_layers: int = 2):
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Block(dim) for _ in range(num_layers)])
        self.head = nn.Linear(dim, "vocab_size", bias=False)
        self.dim = dim

    def hidden(self, ids: Tensor):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return x

    def prefill(self, ids: Tensor):
        x = self.hidden(ids)
        b, s, d = x.shape

        def _index(x: te.Tensor):
            return te.compute((b, 1, d), lambda i, _, k: x[i, s - 1, k], name="index")

        x = op.tensor_expr_op(_index, name_hint="index", args=[x])
        return op.softmax(self.head(x), axis=-1)

    def last_sum(self, ids: Tensor):
        @T.prim_func(private=True)
        def row_sum(x: T.handle, y: T.handle):
            m = T.int64()
            X = T.match_buffer(x, (1, m, 8), "float32")
            Y = T.match_buffer(y, (1, m), "float32")
            for i, j, k in T.grid(1, m, 8):
                with T.block("sum"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        Y[vi, vj] = T.float32(0)
                    Y[vi, vj] += X[vi, vj, vk]

        x = self.hidden(ids)
        return op.tensor_ir_op(
            row_sum, "row_sum", [x], out=Tensor.placeholder((1, x.shape[1]), "float32")
        )


model = Model()
model.to("float32")
print([name for name, _ in model.named_parameters()][:4], len(list(model.parameters())))
mod_spec = {
    "prefill": {
        "ids": spec.Tensor([1, "seq_len"], "int32"),
        "$": {"param_mode": "packed", "effect_mode": "none"},
    },
    "last_sum": {
        "ids": spec.Tensor([1, "seq_len"], "int32"),
        "$": {"param_mode": "packed", "effect_mode": "none"},
    },
}
mod, named_params = model.export_tvm(spec=nn.spec.ModuleSpec.from_raw(mod_spec, model))
for name in ("prefill", "last_sum"):
    print(name, mod[name].ret_struct_info)

rng = np.random.default_rng(0)
values = {}
for name, param in named_params:
    shape = [12 if isinstance(d, tir.Var) else int(d) for d in param.shape]
    values[name] = rng.standard_normal(shape).astype(param.dtype)


def hidden(ids):
    x = values["embed.weight"][ids]
    for i in range(2):
        w = {
            k.removeprefix(f"layers.{i}."): v
            for k, v in values.items()
            if k.startswith(f"layers.{i}.")
        }
        h = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w["norm.weight"]
        x1, x2 = np.split(h @ w["mlp.gate_up_proj.weight"].T, 2, axis=-1)
        x = x + (x1 / (1 + np.exp(-x1)) * x2) @ w["mlp.down_proj.weight"].T * w["scale"]
    return x


ids = np.array([[1, 4, 2, 10, 7]], "int32")
packed = [tvm.nd.array(values[name]) for name, _ in named_params]
with tvm.transform.PassContext(opt_level=3):
    ex = relax.build(mod, target="llvm")
vm = relax.VirtualMachine(ex, tvm.cpu())
x = hidden(ids)
logits = x[:, -1:] @ values["head.weight"].T
e = np.exp(logits - logits.max())
np.testing.assert_allclose(
    vm["prefill"](tvm.nd.array(ids), packed).numpy(), e / e.sum(), rtol=1e-3, atol=1e-5
)
np.testing.assert_allclose(
    vm["last_sum"](tvm.nd.array(ids), packed).numpy(), x.sum(-1), rtol=1e-3, atol=1e-3
)


# --- an external function, and state
@tvm.register_func("env.clip_norm", override=True)
def clip_norm(x, out):
    v = x.numpy()
    out.copyfrom(v / max(1.0, float(np.linalg.norm(v))))


class Stateful(nn.Module):
    def __init__(self):
        self.cache = nn.KVCache(4, [3])

    def forward(self, x: Tensor, total: tir.Var):
        x = op.extern("env.clip_norm", [x], out=Tensor.placeholder(x.shape, "float32"))
        self.cache.append(x)
        return op.sum(self.cache.view(total), axis=0)


mod, _ = Stateful().export_tvm({"forward": {"x": spec.Tensor((1, 3), "float32"), "total": int}})
print(sorted(gv.name_hint for gv in mod.get_global_vars()))
vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
effects = vm["_initialize_effect"]()
x = np.array([[3.0, 0.0, 4.0]], "float32")
for step in range(1, 4):
    out, effects = vm["forward"](tvm.nd.array(x), tvm.runtime.ShapeTuple([step]), *effects)
    np.testing.assert_allclose(out.numpy(), x[0] / 5 * step, rtol=1e-6)

# --- as a function of torch would be called
small = FeedForward(4, 4)
small.load_state_dict({k: np.full(p.shape, 0.5, "float32") for k, p in small.named_parameters()})
run = small.jit({"forward": {"x": spec.Tensor(["n", 4], "float32")}})
print(run(np.ones((2, 4), "float32")).round(3))
