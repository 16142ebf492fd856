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
CALLER, COLLIDED, SLOTS = 768, 772, 776  # i32, i32: see `_PLACING`; i64: workers that came
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
# How to tell the processor of a waiting loop: declaration and call.
_RELAX = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


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
    state = f"""
@relaxvm_pool_state = global [{SIZE // 8} x i64] zeroinitializer, align 64
"""
    if parking == "serial":
        return state + _SERIAL
    declaration, pause = _RELAX.get(architecture, ("", ""))
    waits = _futex(_FUTEX[architecture]) if parking == "futex" else _PTHREAD
    placing = _PLACING if places else _NO_PLACING
    return state + declaration + waits + placing + _pool(pause)


def _at(offset: int) -> str:
    return f"ptr getelementptr (i8, ptr @relaxvm_pool_state, i64 {offset})"


_SERIAL = """
define i32 @relaxvm_parallel_for(ptr %fn, ptr %ctx, i64 %n, i64 %budget, i64 %work) nounwind {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %none
run:
  %code = call i32 %fn(ptr %ctx, i64 0, i64 %n)
  ret i32 %code
none:
  ret i32 0
}
define void @relaxvm_pool_worker() nounwind {
  ret void
}
define void @relaxvm_pool_init() nounwind {
  ret void
}
"""


def _futex(number: int) -> str:
    # 128 is FUTEX_WAIT, 129 FUTEX_WAKE, of one process.
    return f"""
declare i64 @syscall(i64, ...)
define internal void @park(ptr %at, i32 %value) noinline nounwind {{
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %at, i32 128, i32 %value, ptr null,
                                    ptr null, i32 0)
  ret void
}}
define internal void @wake(ptr %at, i32 %count) noinline nounwind {{
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %at, i32 129, i32 %count, ptr null,
                                    ptr null, i32 0)
  ret void
}}
define void @relaxvm_pool_init() nounwind {{
  ret void
}}
"""


_PTHREAD = f"""
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define internal void @park(ptr %at, i32 %value) noinline nounwind {{
entry:
  %l = call i32 @pthread_mutex_lock({_at(MUTEX)})
  %now = load atomic i32, ptr %at seq_cst, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %sleep, label %done
sleep:
  %w = call i32 @pthread_cond_wait({_at(CONDITION)}, {_at(MUTEX)})
  br label %done
done:
  %u = call i32 @pthread_mutex_unlock({_at(MUTEX)})
  ret void
}}
define internal void @wake(ptr %at, i32 %count) noinline nounwind {{
  %l = call i32 @pthread_mutex_lock({_at(MUTEX)})
  %b = call i32 @pthread_cond_broadcast({_at(CONDITION)})
  %u = call i32 @pthread_mutex_unlock({_at(MUTEX)})
  ret void
}}
define void @relaxvm_pool_init() nounwind {{
  %m = call i32 @pthread_mutex_init({_at(MUTEX)}, ptr null)
  %c = call i32 @pthread_cond_init({_at(CONDITION)}, ptr null)
  ret void
}}
"""


_NO_PLACING = """
define internal void @enlist(i64 %k) nounwind {
  ret void
}
define internal void @arrive() nounwind {
  ret void
}
define internal void @spread() nounwind {
  ret void
}
"""

# Some schedulers wake a parked worker on the processor of its caller though another is idle; the
# caller keeps that one busy, and a region with two threads takes as long as with one (measured on
# virtual machines). Once that has been seen, a caller that wakes workers first forbids them its
# own processor: one system call a worker, and again only when the caller has moved.
_PLACING = f"""
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i64 @pthread_self()
declare i64 @llvm.vector.reduce.or.v16i64(<16 x i64>)

define internal void @enlist(i64 %k) nounwind {{
entry:
  %room = icmp ult i64 %k, {MOST_WORKERS}
  br i1 %room, label %note, label %done
note:
  %self = call i64 @pthread_self()
  %slot = getelementptr {{ i64, i64 }}, {_at(THREADS)}, i64 %k
  store atomic i64 %self, ptr %slot release, align 8
  br label %done
done:
  ret void
}}

; A worker got up: on the processor of the one who woke it?
define internal void @arrive() nounwind {{
entry:
  %here = call i32 @sched_getcpu()
  %caller = load atomic i32, {_at(CALLER)} monotonic, align 4
  %same = icmp eq i32 %here, %caller
  br i1 %same, label %note, label %done
note:
  store atomic i32 1, {_at(COLLIDED)} monotonic, align 4
  br label %done
done:
  ret void
}}

; The caller is about to wake workers.
define internal void @spread() noinline nounwind {{
entry:
  %mask = alloca [16 x i64], align 128
  %here = call i32 @sched_getcpu()
  store atomic i32 %here, {_at(CALLER)} monotonic, align 4
  %collided = load atomic i32, {_at(COLLIDED)} monotonic, align 4
  %known = icmp ult i32 %here, 1024
  %seen = icmp ne i32 %collided, 0
  %wanted = and i1 %known, %seen
  br i1 %wanted, label %look, label %done
look:
  %here64 = zext i32 %here to i64
  %mark = add i64 %here64, 1
  %enlisted = load atomic i64, {_at(SLOTS)} acquire, align 8
  %over = icmp ugt i64 %enlisted, {MOST_WORKERS}
  %count = select i1 %over, i64 {MOST_WORKERS}, i64 %enlisted
  br label %next
next:
  %k = phi i64 [ 0, %look ], [ %k.next, %step ]
  %have = phi i1 [ false, %look ], [ %have.next, %step ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %check, label %done
check:
  %slot = getelementptr {{ i64, i64 }}, {_at(THREADS)}, i64 %k
  %off.at = getelementptr {{ i64, i64 }}, {_at(THREADS)}, i64 %k, i32 1
  %thread = load atomic i64, ptr %slot acquire, align 8
  %off = load i64, ptr %off.at, align 8
  %nobody = icmp eq i64 %thread, 0
  %kept = icmp eq i64 %off, %mark
  %skip = or i1 %nobody, %kept
  br i1 %skip, label %step, label %forbid
forbid:
  br i1 %have, label %set, label %read
read:
  store <16 x i64> zeroinitializer, ptr %mask, align 128
  %got = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %fine = icmp sge i32 %got, 0
  br i1 %fine, label %clear, label %done
clear:
  %word = lshr i64 %here64, 6
  %bit = and i64 %here64, 63
  %one = shl i64 1, %bit
  %others = xor i64 %one, -1
  %at = getelementptr i64, ptr %mask, i64 %word
  %was = load i64, ptr %at, align 8
  %now = and i64 %was, %others
  store i64 %now, ptr %at, align 8
  %all = load <16 x i64>, ptr %mask, align 128
  %any = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %all)
  %none = icmp eq i64 %any, 0
  br i1 %none, label %done, label %set
set:
  %r = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  store i64 %mark, ptr %off.at, align 8
  br label %step
step:
  %have.next = phi i1 [ %have, %check ], [ true, %set ]
  %k.next = add i64 %k, 1
  br label %next
done:
  ret void
}}
"""


def _pool(pause: str) -> str:
    low = GATE if sys.byteorder == "little" else GATE + 4
    return f"""
; Work on lane `mine`, then on those behind it.
define internal void @drain(i64 %mine) noinline nounwind {{
entry:
  %fn = load ptr, {_at(FN)}, align 8
  %ctx = load ptr, {_at(CTX)}, align 8
  %n = load i64, {_at(COUNT)}, align 8
  %chunk = load i64, {_at(CHUNK)}, align 8
  %lanes = load i64, {_at(LANES)}, align 8
  br label %enter
enter:
  %lane = phi i64 [ %mine, %entry ], [ %lane.next, %leave ]
  %seen = phi i64 [ 1, %entry ], [ %seen.next, %leave ]
  %free = getelementptr [8 x i64], {_at(NEXT)}, i64 %lane
  %following = add i64 %lane, 1
  %before.next = mul i64 %following, %n
  %last = udiv i64 %before.next, %lanes
  br label %take
take:
  %code.now = load atomic i32, {_at(FAILURE)} monotonic, align 4
  %sound = icmp eq i32 %code.now, 0
  br i1 %sound, label %more, label %done
more:
  %begin = atomicrmw add ptr %free, i64 %chunk monotonic
  %left = icmp slt i64 %begin, %last
  br i1 %left, label %run, label %leave
run:
  %up = add i64 %begin, %chunk
  %over = icmp sgt i64 %up, %last
  %end = select i1 %over, i64 %last, i64 %up
  %code = call i32 %fn(ptr %ctx, i64 %begin, i64 %end)
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %take, label %failed
failed:
  %kept = cmpxchg {_at(FAILURE)}, i32 0, i32 %code monotonic monotonic
  br label %done
leave:
  %round = icmp eq i64 %following, %lanes
  %lane.next = select i1 %round, i64 0, i64 %following
  %seen.next = add i64 %seen, 1
  %all = icmp eq i64 %seen, %lanes
  br i1 %all, label %done, label %enter
done:
  ret void
}}

define i32 @relaxvm_parallel_for(ptr %fn, ptr %ctx, i64 %n, i64 %budget, i64 %work) nounwind {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %sized, label %none
none:
  ret i32 0
sized:
  %default = load atomic i64, {_at(DEFAULT)} monotonic, align 8
  %unset = icmp sle i64 %budget, 0
  %wish = select i1 %unset, i64 %default, i64 %budget
  %worth = sdiv i64 %work, {GRAIN}
  %too.many = icmp sgt i64 %wish, %worth
  %able = select i1 %too.many, i64 %worth, i64 %wish
  %more.than.n = icmp sgt i64 %able, %n
  %useful = select i1 %more.than.n, i64 %n, i64 %able
  %all.workers = load atomic i64, {_at(STARTED)} monotonic, align 8
  %parked = load atomic i32, {_at(SLEEPERS)} monotonic, align 4
  %parked64 = zext i32 %parked to i64
  %awake = sub i64 %all.workers, %parked64
  %at.hand = add i64 %awake, 1
  %enough = icmp sle i64 %useful, %at.hand
  br i1 %enough, label %known, label %want
want:
  %lacked = load atomic i64, {_at(WANTED)} monotonic, align 8
  %lack = add i64 %lacked, %work
  %much = icmp sge i64 %work, {WAKING}
  %often = icmp sge i64 %lack, {WANTING}
  %wake.now = or i1 %much, %often
  %lack.next = select i1 %wake.now, i64 0, i64 %lack
  store atomic i64 %lack.next, {_at(WANTED)} monotonic, align 8
  br label %known
known:
  %as.wished = phi i1 [ true, %sized ], [ %wake.now, %want ]
  %threads = select i1 %as.wished, i64 %useful, i64 %at.hand
  %several = icmp sgt i64 %threads, 1
  %countable = icmp slt i64 %n, {_PARALLEL_MOST}
  %wanted = and i1 %several, %countable
  br i1 %wanted, label %try, label %serial
serial:
  %alone = call i32 %fn(ptr %ctx, i64 0, i64 %n)
  ret i32 %alone
try:
  %swap = cmpxchg {_at(LOCK)}, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %mine, label %have, label %serial
have:
  %need = sub i64 %threads, 1
  %started = load atomic i64, {_at(STARTED)} acquire, align 8
  %starter = load ptr, {_at(STARTER)}, align 8
  %lacking = icmp slt i64 %started, %need
  %can.start = icmp ne ptr %starter, null
  %start.now = and i1 %lacking, %can.start
  br i1 %start.now, label %start, label %open
start:
  call void %starter(i64 %need)
  br label %open
open:
  %pieces = shl i64 %threads, 2
  %rounded = add i64 %n, %pieces
  %rounded.less = sub i64 %rounded, 1
  %chunk = udiv i64 %rounded.less, %pieces
  store ptr %fn, {_at(FN)}, align 8
  store ptr %ctx, {_at(CTX)}, align 8
  store i64 %n, {_at(COUNT)}, align 8
  store i64 %chunk, {_at(CHUNK)}, align 8
  store i32 0, {_at(FAILURE)}, align 4
  store i64 %threads, {_at(LANES)}, align 8
  br label %lay
lay:
  %lane = phi i64 [ 0, %open ], [ %lane.next, %lay ]
  %before = mul i64 %lane, %n
  %first = udiv i64 %before, %threads
  %free = getelementptr [8 x i64], {_at(NEXT)}, i64 %lane
  store atomic i64 %first, ptr %free monotonic, align 8
  %lane.next = add i64 %lane, 1
  %laid = icmp eq i64 %lane.next, %threads
  br i1 %laid, label %publish, label %lay
publish:
  %regions = load i64, {_at(REGIONS)}, align 8
  %regions.more = add i64 %regions, 1
  store i64 %regions.more, {_at(REGIONS)}, align 8
  %seats = shl i64 %need, 32
  store atomic i64 %seats, {_at(GATE)} seq_cst, align 8
  %former = atomicrmw add {_at(EPOCH)}, i32 1 seq_cst
  %sleepers = load atomic i32, {_at(SLEEPERS)} seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %rouse, label %work.here
rouse:
  call void @spread()
  %need32 = trunc i64 %need to i32
  call void @wake({_at(EPOCH)}, i32 %need32)
  br label %work.here
work.here:
  call void @drain(i64 0)
  %closed = atomicrmw and {_at(GATE)}, i64 4294967295 seq_cst
  br label %spin
spin:
  %turn = phi i64 [ 0, %work.here ], [ %turn.next, %spin.more ]
  %sitting = load atomic i64, {_at(GATE)} acquire, align 8
  %empty = icmp eq i64 %sitting, 0
  br i1 %empty, label %finish, label %spin.more
spin.more:
  {pause}
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, {_SPINS}
  br i1 %patient, label %spin, label %lie.down
lie.down:
  store atomic i32 1, {_at(WAITING)} seq_cst, align 4
  br label %look
look:
  %still = load atomic i64, {_at(GATE)} seq_cst, align 8
  %gone = icmp eq i64 %still, 0
  br i1 %gone, label %get.up, label %sleep
sleep:
  %still32 = trunc i64 %still to i32
  call void @park({_at(low)}, i32 %still32)
  br label %look
get.up:
  store atomic i32 0, {_at(WAITING)} seq_cst, align 4
  br label %finish
finish:
  %failure = load atomic i32, {_at(FAILURE)} acquire, align 4
  store atomic i32 0, {_at(LOCK)} release, align 4
  ret i32 %failure
}}

define void @relaxvm_pool_worker() nounwind {{
entry:
  %me = atomicrmw add {_at(SLOTS)}, i64 1 seq_cst
  call void @enlist(i64 %me)
  br label %again
again:
  %run = phi i64 [ 0, %entry ], [ %run, %idle ], [ %run.next, %leave ], [ 0, %sleep ]
  %epoch = load atomic i32, {_at(EPOCH)} seq_cst, align 4
  %seen = load atomic i64, {_at(GATE)} seq_cst, align 8
  br label %try
try:
  %gate = phi i64 [ %seen, %again ], [ %other, %sit ]
  %seats = lshr i64 %gate, 32
  %full = icmp eq i64 %seats, 0
  br i1 %full, label %idle, label %sit
sit:
  %seated = sub i64 %gate, 4294967295
  %swap = cmpxchg {_at(GATE)}, i64 %gate, i64 %seated seq_cst seq_cst
  %other = extractvalue {{ i64, i1 }} %swap, 0
  %sat = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %sat, label %work, label %try
work:
  %lanes = load i64, {_at(LANES)}, align 8
  %helpers = sub i64 %lanes, 1
  %helper = urem i64 %me, %helpers
  %mine = add i64 %helper, 1
  call void @drain(i64 %mine)
  %run.next = add i64 %run, 1
  %before = atomicrmw sub {_at(GATE)}, i64 1 seq_cst
  %before32 = trunc i64 %before to i32
  %last = icmp eq i32 %before32, 1
  %waiting = load atomic i32, {_at(WAITING)} seq_cst, align 4
  %waited = icmp ne i32 %waiting, 0
  %call = and i1 %last, %waited
  br i1 %call, label %tell, label %leave
tell:
  call void @wake({_at(low)}, i32 1)
  br label %leave
leave:
  br label %again
idle:
  %turn = phi i64 [ 0, %try ], [ %turn.next, %idle.more ]
  %running = icmp uge i64 %run, {_RUN}
  %now = load atomic i32, {_at(EPOCH)} monotonic, align 4
  %new = icmp ne i32 %now, %epoch
  br i1 %new, label %again, label %idle.more
idle.more:
  {pause}
  %turn.next = add i64 %turn, 1
  %patience = select i1 %running, i64 {_RUN_SPINS}, i64 {_SPINS}
  %patient = icmp ult i64 %turn.next, %patience
  br i1 %patient, label %idle, label %sleep
sleep:
  %up = atomicrmw add {_at(SLEEPERS)}, i32 1 seq_cst
  call void @park({_at(EPOCH)}, i32 %epoch)
  call void @arrive()
  %down = atomicrmw sub {_at(SLEEPERS)}, i32 1 seq_cst
  br label %again
}}
"""
