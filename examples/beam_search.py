"""A beam search whose number of beams depends on the data.

    python examples/beam_search.py

Sentences are grown word by word with a table of word-pair scores. Every beam is tried with every
word, and those within `margin` of the best are kept: how many that are is known only when the
program runs, so shapes are symbols that each round binds anew. The search calls itself last of all:
a loop. The result is compared with the same search in numpy.
"""

import numpy as np

import relaxvm as tvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module
class Beams:
    @R.function
    def grow(
        words: R.Tensor(("b", "t"), "int64"),
        scores: R.Tensor(("b",), "float32"),
        pairs: R.Tensor(("v", "v"), "float32"),
        margin: R.Tensor((), "float32"),
    ) -> R.Tuple(R.Tensor(dtype="int64", ndim=2), R.Tensor(dtype="float32", ndim=1)):
        """One round: every beam with every word, and of these the good ones."""
        b = T.int64()
        t = T.int64()
        v = T.int64()
        k = T.int64()
        last = R.reshape(
            R.strided_slice(words, axes=[1], begin=[t - 1], end=[t], assume_inbound=True), (b,)
        )
        steps = R.take(pairs, last, axis=0)
        total = R.reshape(R.add(R.expand_dims(scores, 1), steps), (b * v,))
        limit = R.subtract(R.max(total), margin)
        found = R.nonzero(R.greater_equal(total, limit))
        kept = R.match_cast(found, R.Tensor((1, k), "int64"))
        at = R.reshape(kept, (k,))
        beam = R.floor_divide(at, R.prim_value(v))
        word = R.reshape(R.floor_mod(at, R.prim_value(v)), (k, 1))
        grown = R.concat([R.take(words, beam, axis=0), word], axis=1)
        return (grown, R.take(total, at, axis=0))

    @R.function
    def search(
        left: R.Prim(value="i"),
        words: R.Tensor(("b", "t"), "int64"),
        scores: R.Tensor(("b",), "float32"),
        pairs: R.Tensor(("v", "v"), "float32"),
        margin: R.Tensor((), "float32"),
    ) -> R.Tuple(R.Tensor(dtype="int64", ndim=2), R.Tensor(dtype="float32", ndim=1)):
        i = T.int64()
        m = T.int64()
        s = T.int64()
        if R.prim_value(i > 0):
            grown = Beams.grow(words, scores, pairs, margin)
            more = R.match_cast(grown[0], R.Tensor((m, s), "int64"))
            better = R.match_cast(grown[1], R.Tensor((m,), "float32"))
            result = Beams.search(R.prim_value(i - 1), more, better, pairs, margin)
        else:
            result = (words, scores)
        return result


def numpy_search(rounds, words, scores, pairs, margin):
    widths = []
    for _ in range(rounds):
        total = (scores[:, None] + pairs[words[:, -1]]).reshape(-1)
        at = np.nonzero(total >= total.max() - margin)[0]
        words = np.concatenate([words[at // len(pairs)], (at % len(pairs))[:, None]], axis=1)
        scores = total[at]
        widths.append(len(at))
    return words, scores, widths


def main():
    vm = relax.VirtualMachine(relax.build(Beams, "llvm"), tvm.cpu())
    rng = np.random.default_rng(3)
    pairs = rng.integers(-32, 0, (7, 7)).astype("float32") / 8
    words, scores = np.array([[0]]), np.zeros(1, "float32")
    for rounds, margin in ((0, 0.5), (1, 1.0), (6, 1.0), (12, 0.5), (12, 0.0)):
        margin = np.array(margin, "float32")
        found, found_scores = vm["search"](rounds, words, scores, pairs, margin)
        wanted, wanted_scores, widths = numpy_search(rounds, words, scores, pairs, margin)
        np.testing.assert_array_equal(found.numpy(), wanted)
        np.testing.assert_allclose(found_scores.numpy(), wanted_scores)
        print(f"{rounds:3} rounds, beams kept {widths}: as numpy")


if __name__ == "__main__":
    main()
