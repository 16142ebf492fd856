"""Optimise a model end to end: nn.Module, export, passes, build, run, save, load, and timing."""

import os
import tempfile

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn


class RelaxModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 32)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(32, 10, bias=False)

    def forward(self, x):
        x = self.fc1(x)
        x = self.relu1(x)
        x = self.fc2(x)
        return x


model_from_relax = RelaxModel()
mod, param_spec = model_from_relax.export_tvm(
    spec={"forward": {"x": nn.spec.Tensor((1, 784), "float32")}}
)
print([(name, tuple(p.shape), p.dtype) for name, p in param_spec])
print(mod["forward"].struct_info.params[0], "->", mod["forward"].ret_struct_info)

rng = np.random.default_rng(0)
params_np = {name: rng.random(p.shape).astype("float32") for name, p in param_spec}
params = [tvm.nd.array(params_np[name]) for name, _ in param_spec]
data = rng.random((1, 784)).astype("float32")
wanted = (
    np.maximum(data @ params_np["fc1.weight"].T + params_np["fc1.bias"], 0)
    @ params_np["fc2.weight"].T
)

mod = relax.get_pipeline("zero")(mod)
target = tvm.target.Target("llvm")
with target:
    ex = tvm.compile(mod, target)
device = tvm.cpu()
vm = relax.VirtualMachine(ex, device)
cpu_out = vm["forward"](tvm.nd.array(data, device), *params).numpy()
np.testing.assert_allclose(cpu_out, wanted, rtol=1e-4)
print(cpu_out.shape)

timer = vm.time_evaluator("forward", device, number=3, repeat=2)
assert timer(tvm.nd.array(data), *params).mean > 0

# --- parameters inside; saved beside the program
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.rvm")
    ex.export_library(path)
    loaded = relax.VirtualMachine(tvm.runtime.load_module(path), device)
    np.testing.assert_array_equal(loaded["forward"](tvm.nd.array(data), *params).numpy(), cpu_out)
    tvm.runtime.save_param_dict_to_file(
        {name: tvm.nd.array(v) for name, v in params_np.items()}, os.path.join(folder, "params.bin")
    )
    again = tvm.runtime.load_param_dict_from_file(os.path.join(folder, "params.bin"))
    out = loaded["forward"](tvm.nd.array(data), *(again[name] for name, _ in param_spec))
    np.testing.assert_array_equal(out.numpy(), cpu_out)

bound = relax.transform.BindParams("forward", {k: tvm.nd.array(v) for k, v in params_np.items()})(
    mod
)
vm = relax.VirtualMachine(relax.build(bound, target), device)
np.testing.assert_allclose(vm["forward"](tvm.nd.array(data)).numpy(), wanted, rtol=1e-4)

# --- an own order of passes
with tvm.transform.PassContext(opt_level=3):
    seq = tvm.ir.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.FoldConstant(),
            relax.transform.DeadCodeElimination(["forward"]),
        ]
    )
    lowered = seq(bound)
vm = relax.VirtualMachine(relax.build(lowered, target), device)
np.testing.assert_allclose(vm["forward"](tvm.nd.array(data)).numpy(), wanted, rtol=1e-4)
vm.set_input("forward", tvm.nd.array(data))
vm.invoke_stateful("forward")
np.testing.assert_allclose(vm.get_outputs("forward").numpy(), wanted, rtol=1e-4)
