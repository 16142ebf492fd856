"""The LLVM IR of the thread pool, and the layout of its state.

One region runs at a time. The caller publishes the job, opens seats in the gate and works itself;
workers that find a seat help. Nobody waits for a worker that has not sat down, so a region ends
even if no worker ever comes (after a foreign fork, or while the interpreter exits).

The iterations lie in as many lanes as threads may work. Each thread begins with a lane of its own,
the same one in every region, and then helps in the others: what a kernel reads of a weight stays in
the cache of the core that reads it in the next call, and nobody waits for one who is late.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..base import Deferred

if TYPE_CHECKING:
    from ..base import llvm
else:
    llvm = Deferred("relaxvm.base.llvm")

GRAIN = 1 << 14
"""Operations that are worth one thread more that is awake: about 5 µs of them."""

WAKING = 1 << 17
"""Operations that are worth waking threads for, which takes 10 to 50 µs."""

WANTING = 4 * WAKING
"""Operations that wake threads if several regions, each too small for that, lacked them."""

SYMBOLS = (
    "relaxvm_parallel_for",
    "relaxvm_pool_worker",
    "relaxvm_pool_init",
    "relaxvm_pool_state",
)

PLACING_SYMBOLS = (
    "sched_getcpu",
    "sched_getaffinity",
    "pthread_setaffinity_np",
    "pthread_self",
)

# Byte offsets in the state; words that different threads write stand on cache lines of their own.
LOCK = 0  # i32, 1 while a region has the pool
EPOCH = 64  # i32, counts regions; idle workers park on it
GATE = 128  # i64: low half, workers that sit; high half, seats still open
WANTED = 192  # i64, operations of regions that would have liked another thread
FN, CTX, COUNT, CHUNK, FAILURE, LANES = 256, 264, 272, 280, 288, 296  # the job
SLEEPERS, WAITING = 320, 384  # i32, workers that are parked; whether the caller is
STARTED, DEFAULT, STARTER = 448, 456, 464  # i64, i64, ptr: set from Python
REGIONS = 472  # i64, regions that the pool ran
MUTEX, CONDITION = 512, 640  # for pthreads
CALLER, COLLIDED, SLOTS = 768, 772, 776  # i32, i32: see `_placing`; i64: workers that came
THREADS = 832  # for each worker: i64, its pthread_t; i64, 1 + the processor that it keeps off
MOST_WORKERS = 255
NEXT = THREADS + 16 * (MOST_WORKERS + 1)  # for each lane, 64 bytes: i64, its first free iteration
SIZE = NEXT + 64 * (MOST_WORKERS + 1)

_PARALLEL_MOST = 1 << 54
_SPINS = 2000  # some 30 to 90 µs: less than it takes to wake a thread on an idle virtual processor
# In a run of regions, as a graph's kernels are, workers bear what one thread does between two of
# them: the virtual processor of a thread that parks there may be back milliseconds later.
_RUN = 4  # regions
_RUN_SPINS = 10 * _SPINS
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "powerpc64le": 221, "s390x": 238}
# How to tell the processor of a waiting loop: an intrinsic and its arguments.
_RELAX: dict[str, tuple[str, tuple[int, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (1,)),
}
_THREAD = "{ i64, i64 }"
_LOW = GATE if sys.byteorder == "little" else GATE + 4  # the half that counts who sits


def parking_of(architecture: str) -> str:
    """How threads park on this system: "futex", "pthread", or "serial" where neither is known."""
    if sys.platform == "linux" and architecture in _FUTEX:
        return "futex"
    return "pthread" if sys.platform in ("linux", "darwin") else "serial"


def pool_ir(architecture: str, parking: str, places: bool = False) -> str:
    """LLVM IR of the pool. "serial" gives one whose regions run in the caller.

    places  keep workers off their caller's processor where the system does not: needs the functions
            `PLACING_SYMBOLS` of Linux's C libraries
    """
    m = llvm.Module()
    m.variable("relaxvm_pool_state", f"[{SIZE // 8} x i64]", "zeroinitializer", 64)
    if parking == "serial":
        f = m.define(_PARALLEL_FOR, SYMBOLS[0])
        fn, ctx, n, _, _ = f.params
        with f.if_(f.op("icmp sgt", n, 0)):
            f.ret(f.call(fn, ctx, 0, n, of=_JOB))
        f.ret(0)
        m.define("void()", SYMBOLS[1]).ret()
        m.define("void()", SYMBOLS[2]).ret()
        return m.text()
    if parking == "futex":
        _futex(m, _FUTEX[architecture])
    else:
        _pthread(m)
    _placing(m, places)
    _drain(m)
    _parallel_for(m, architecture)
    _worker(m, architecture)
    return m.text()


# A job, ``fn(ctx, begin, end)``, gives the number of its failure or 0. The pool gets fn, ctx, the
# iterations, the most threads (0: as many as there are), the operations of all of it.
_JOB = "i32(ptr, i64, i64)"
_PARALLEL_FOR = "i32(ptr, ptr, i64, i64, i64)"


def _at(offset: int) -> llvm.Value:
    return llvm.address_in("relaxvm_pool_state", offset)


def _lane(f: llvm.Function, lane: llvm.Operand) -> llvm.Value:
    """Where the first free iteration of a lane stands."""
    return f.element("[8 x i64]", _at(NEXT), lane)


def _pause(f: llvm.Function, architecture: str) -> None:
    """Tell the processor of a waiting loop."""
    if architecture in _RELAX:
        name, args = _RELAX[architecture]
        f.module.declare(name, "void", ("i32",) * len(args))
        f.call(name, *args)


def _futex(m: llvm.Module, number: int) -> None:
    m.declare("syscall", "i64", ("i64", "..."), "")
    for name, command in (("park", 128), ("wake", 129)):
        # FUTEX_WAIT and FUTEX_WAKE, of one process.
        f = m.define("void(ptr, i32)", name, "noinline nounwind", "internal")
        zero = llvm.constant(0, "i32")
        how = llvm.constant(command, "i32")
        f.call("syscall", number, f.params[0], how, f.params[1], None, None, zero)
        f.ret()
    m.define("void()", "relaxvm_pool_init").ret()


def _pthread(m: llvm.Module) -> None:
    mutex, condition = _at(MUTEX), _at(CONDITION)
    for name in ("mutex_init", "cond_init", "cond_wait"):
        m.declare(f"pthread_{name}", "i32", ("ptr", "ptr"), "")
    for name in ("mutex_lock", "mutex_unlock", "cond_broadcast"):
        m.declare(f"pthread_{name}", "i32", ("ptr",), "")
    f = m.define("void(ptr, i32)", "park", "noinline nounwind", "internal")
    f.call("pthread_mutex_lock", mutex)
    now = f.load("i32", f.params[0], order="seq_cst")
    with f.if_(f.op("icmp eq", now, f.params[1])):
        f.call("pthread_cond_wait", condition, mutex)
    f.call("pthread_mutex_unlock", mutex)
    f.ret()
    f = m.define("void(ptr, i32)", "wake", "noinline nounwind", "internal")
    f.call("pthread_mutex_lock", mutex)
    f.call("pthread_cond_broadcast", condition)
    f.call("pthread_mutex_unlock", mutex)
    f.ret()
    f = m.define("void()", "relaxvm_pool_init")
    f.call("pthread_mutex_init", mutex, None)
    f.call("pthread_cond_init", condition, None)
    f.ret()


def _placing(m: llvm.Module, places: bool) -> None:
    """Some schedulers wake a parked worker on the processor of its caller though another is idle;
    the caller keeps that one busy, and a region with two threads takes as long as with one
    (measured on virtual machines). Once that has been seen, a caller that wakes workers first
    forbids them its own processor: one system call a worker, and again only when the caller has
    moved.
    """
    enlist = m.define("void(i64)", "enlist", linkage="internal")
    arrive = m.define("void()", "arrive", linkage="internal")
    spread = m.define("void()", "spread", "noinline nounwind", "internal")
    if places:
        m.declare("sched_getcpu", "i32", (), "")
        m.declare("sched_getaffinity", "i32", ("i32", "i64", "ptr"), "")
        m.declare("pthread_setaffinity_np", "i32", ("i64", "i64", "ptr"), "")
        m.declare("pthread_self", "i64", (), "")
        (k,) = enlist.params
        with enlist.if_(enlist.op("icmp ult", k, MOST_WORKERS)):
            slot = enlist.element(_THREAD, _at(THREADS), k)
            enlist.store(enlist.call("pthread_self"), slot, order="release")
        # A worker got up: on the processor of the one who woke it?
        here = arrive.call("sched_getcpu")
        caller = arrive.load("i32", _at(CALLER), order="monotonic")
        with arrive.if_(arrive.op("icmp eq", here, caller)):
            arrive.store(1, _at(COLLIDED), order="monotonic", of="i32")
        _spread(spread)
    for f in (enlist, arrive, spread):
        f.ret()


def _spread(f: llvm.Function) -> None:
    """The caller is about to wake workers."""
    words = "<16 x i64>"
    mask, has_mask = f.alloca("i64", 128, 16), f.slot("i8", 0)
    here = f.call("sched_getcpu")
    f.store(here, _at(CALLER), order="monotonic")
    collided = f.load("i32", _at(COLLIDED), order="monotonic")
    known = f.op("icmp ult", here, 1024)
    with f.if_(f.op("and", known, f.op("icmp ne", collided, 0))):
        here = f.cast("zext", here, "i64")
        mark = f.op("add", here, 1)
        enlisted = f.load("i64", _at(SLOTS), order="acquire")
        over = f.op("icmp ugt", enlisted, MOST_WORKERS)
        with f.for_(f.select(over, MOST_WORKERS, enlisted)) as k:
            slot = f.element(_THREAD, _at(THREADS), k)
            thread = f.load("i64", slot, order="acquire")
            kept = f.op("icmp eq", f.load("i64", f.at(slot, 8)), mark)
            nobody = f.op("icmp eq", thread, 0)
            with f.if_(f.not_(f.op("or", nobody, kept))):
                with f.if_(f.op("icmp eq", f.load("i8", has_mask), 0)):
                    f.store(0, mask, 128, of=words)
                    size = f.call("sched_getaffinity", 0, 128, mask)
                    with f.if_(f.op("icmp slt", size, 0)):
                        f.ret()
                    bit = f.op("shl", llvm.constant(1, "i64"), f.op("and", here, 63))
                    word = f.element("i64", mask, f.op("lshr", here, 6))
                    f.store(f.op("and", f.load("i64", word), f.op("xor", bit, -1)), word)
                    every = f.load(words, mask, 128)
                    some = f.extern("i64", "llvm.vector.reduce.or.v16i64", every)
                    with f.if_(f.op("icmp eq", some, 0)):
                        f.ret()
                    f.store(1, has_mask, of="i8")
                f.call("pthread_setaffinity_np", thread, 128, mask)
                f.store(mark, f.at(slot, 8))


def _drain(m: llvm.Module) -> None:
    """Work on a lane, then on those behind it."""
    f = m.define("void(i64)", "drain", "noinline nounwind", "internal")
    (mine,) = f.params
    fn, ctx = f.load("ptr", _at(FN)), f.load("ptr", _at(CTX))
    n, chunk, lanes = (f.load("i64", _at(word)) for word in (COUNT, CHUNK, LANES))
    f.enter("enter")
    lane, next_lane = f.carried("i64", (mine, "start"))
    seen, next_seen = f.carried("i64", (1, "start"))
    free = _lane(f, lane)
    following = f.op("add", lane, 1)
    last = f.op("udiv", f.op("mul", following, n), lanes)
    f.enter("take")
    failure = f.load("i32", _at(FAILURE), order="monotonic")
    f.branch(f.op("icmp eq", failure, 0), "more", "done")
    f.start("more")
    begin = f.change("add", free, chunk, "monotonic")
    f.branch(f.op("icmp slt", begin, last), "run", "leave")
    f.start("run")
    up = f.op("add", begin, chunk)
    end = f.select(f.op("icmp sgt", up, last), last, up)
    code = f.call(fn, ctx, begin, end, of=_JOB)
    f.branch(f.op("icmp eq", code, 0), "take", "failed")
    f.start("failed")
    f.exchange("i32", _at(FAILURE), 0, code, "monotonic monotonic")
    f.jump("done")
    f.start("leave")
    around = f.op("icmp eq", following, lanes)
    next_lane(f.select(around, 0, following), "leave")
    next_seen(f.op("add", seen, 1), "leave")
    f.branch(f.op("icmp eq", seen, lanes), "done", "enter")
    f.start("done")
    f.ret()


def _parallel_for(m: llvm.Module, architecture: str) -> None:
    f = m.define(_PARALLEL_FOR, SYMBOLS[0])
    fn, ctx, n, budget, work = f.params
    with f.if_(f.op("icmp sle", n, 0)):
        f.ret(0)
    default = f.load("i64", _at(DEFAULT), order="monotonic")
    wish = f.select(f.op("icmp sle", budget, 0), default, budget)
    worth = f.op("sdiv", work, GRAIN)
    able = f.select(f.op("icmp sgt", wish, worth), worth, wish)
    useful = f.select(f.op("icmp sgt", able, n), n, able)
    started = f.load("i64", _at(STARTED), order="monotonic")
    parked = f.cast("zext", f.load("i32", _at(SLEEPERS), order="monotonic"), "i64")
    at_hand = f.op("add", f.op("sub", started, parked), 1)

    def is_wanted_enough() -> llvm.Value:
        lack = f.op("add", f.load("i64", _at(WANTED), order="monotonic"), work)
        often = f.op("icmp sge", lack, WANTING)
        wakes = f.op("or", f.op("icmp sge", work, WAKING), often)
        f.store(f.select(wakes, 0, lack), _at(WANTED), order="monotonic")
        return wakes

    lacks = f.op("icmp sgt", useful, at_hand)
    as_wished = f.either(lacks, is_wanted_enough, lambda: True)
    threads = f.select(as_wished, useful, at_hand)
    countable = f.op("icmp slt", n, _PARALLEL_MOST)
    f.branch(f.op("and", f.op("icmp sgt", threads, 1), countable), "try", "serial")
    f.start("serial")
    f.ret(f.call(fn, ctx, 0, n, of=_JOB))
    f.start("try")
    _, mine = f.exchange("i32", _at(LOCK), 0, 1, "acquire monotonic")
    f.branch(mine, "have", "serial")
    f.start("have")
    need = f.op("sub", threads, 1)
    lacking = f.op("icmp slt", f.load("i64", _at(STARTED), order="acquire"), need)
    starter = f.load("ptr", _at(STARTER))
    with f.if_(f.op("and", lacking, f.op("icmp ne", starter, None))):
        f.call(starter, need, of="void(i64)")
    pieces = f.op("shl", threads, 2)
    rounded = f.op("sub", f.op("add", n, pieces), 1)
    f.store(fn, _at(FN))
    f.store(ctx, _at(CTX))
    f.store(n, _at(COUNT))
    f.store(f.op("udiv", rounded, pieces), _at(CHUNK))
    f.store(0, _at(FAILURE), of="i32")
    f.store(threads, _at(LANES))
    with f.for_(threads, guard="") as lane:
        first = f.op("udiv", f.op("mul", lane, n), threads)
        f.store(first, _lane(f, lane), order="monotonic")
    f.store(f.op("add", f.load("i64", _at(REGIONS)), 1), _at(REGIONS))
    f.store(f.op("shl", need, 32), _at(GATE), order="seq_cst")
    f.change("add", _at(EPOCH), 1, "seq_cst", of="i32")
    sleepers = f.load("i32", _at(SLEEPERS), order="seq_cst")
    with f.if_(f.op("icmp ne", sleepers, 0)):
        f.call("spread")
        f.call("wake", _at(EPOCH), f.cast("trunc", need, "i32"))
    f.call("drain", 0)
    f.change("and", _at(GATE), (1 << 32) - 1, "seq_cst", of="i64")
    before = f.block
    f.enter("spin")
    turn, again = f.carried("i64", (0, before))
    sitting = f.load("i64", _at(GATE), order="acquire")
    f.branch(f.op("icmp eq", sitting, 0), "finish", "spin.more")
    f.start("spin.more")
    _pause(f, architecture)
    following = f.op("add", turn, 1)
    again(following, "spin.more")
    f.branch(f.op("icmp ult", following, _SPINS), "spin", "lie.down")
    f.start("lie.down")
    f.store(1, _at(WAITING), order="seq_cst", of="i32")
    f.enter("look")
    still = f.load("i64", _at(GATE), order="seq_cst")
    f.branch(f.op("icmp eq", still, 0), "get.up", "sleep")
    f.start("sleep")
    f.call("park", _at(_LOW), f.cast("trunc", still, "i32"))
    f.jump("look")
    f.start("get.up")
    f.store(0, _at(WAITING), order="seq_cst", of="i32")
    f.enter("finish")
    failure = f.load("i32", _at(FAILURE), order="acquire")
    f.store(0, _at(LOCK), order="release", of="i32")
    f.ret(failure)


def _worker(m: llvm.Module, architecture: str) -> None:
    f = m.define("void()", SYMBOLS[1])
    me = f.change("add", _at(SLOTS), 1, "seq_cst", of="i64")
    f.call("enlist", me)
    f.enter("again")
    run, runs = f.carried("i64", (0, "start"), (0, "sleep"))
    runs(run, "idle")
    epoch = f.load("i32", _at(EPOCH), order="seq_cst")
    seen = f.load("i64", _at(GATE), order="seq_cst")
    f.enter("try")
    gate, retry = f.carried("i64", (seen, "again"))
    seats = f.op("lshr", gate, 32)
    f.branch(f.op("icmp eq", seats, 0), "idle", "sit")
    f.start("sit")
    seated = f.op("sub", gate, (1 << 32) - 1)
    other, sat = f.exchange("i64", _at(GATE), gate, seated, "seq_cst seq_cst")
    retry(other, "sit")
    f.branch(sat, "work", "try")
    f.start("work")
    helpers = f.op("sub", f.load("i64", _at(LANES)), 1)
    f.call("drain", f.op("add", f.op("urem", me, helpers), 1))
    before = f.change("sub", _at(GATE), 1, "seq_cst", of="i64")
    last = f.op("icmp eq", f.cast("trunc", before, "i32"), 1)
    waited = f.op("icmp ne", f.load("i32", _at(WAITING), order="seq_cst"), 0)
    with f.if_(f.op("and", last, waited)):
        f.call("wake", _at(_LOW), 1)
    runs(f.op("add", run, 1), f.block)
    f.jump("again")
    f.start("idle")
    turn, turns = f.carried("i64", (0, "try"))
    running = f.op("icmp uge", run, _RUN)
    now = f.load("i32", _at(EPOCH), order="monotonic")
    f.branch(f.op("icmp ne", now, epoch), "again", "idle.more")
    f.start("idle.more")
    _pause(f, architecture)
    following = f.op("add", turn, 1)
    turns(following, "idle.more")
    patience = f.select(running, llvm.constant(_RUN_SPINS, "i64"), _SPINS)
    f.branch(f.op("icmp ult", following, patience), "idle", "sleep")
    f.start("sleep")
    f.change("add", _at(SLEEPERS), 1, "seq_cst", of="i32")
    f.call("park", _at(EPOCH), epoch)
    f.call("arrive")
    f.change("sub", _at(SLEEPERS), 1, "seq_cst", of="i32")
    f.jump("again")
