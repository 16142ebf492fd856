"""The tuner's space: points are data, the same point gives the same schedule, whose trace replays;
every schedule of the space computes what the function does.
"""

import json
import random

import numpy as np
import pytest

import relaxvm
from relaxvm import te
from relaxvm.base import ScheduleError
from relaxvm.meta_schedule.database import MemoryDatabase, TuningRecord, Workload, key_of
from relaxvm.meta_schedule.space import Point, Space, point_from_json
from relaxvm.target import cpu_model
from relaxvm.tir.schedule import Schedule
from relaxvm.tir.schedule.plans import Picks, View, apply_plan, plan_from_json, schedule_function
from relaxvm.tir.schedule.plans.levels import Levels


def product(n, k, m, epilogue=False):
    a, b = te.placeholder((n, k), "float32", "A"), te.placeholder((k, m), "float32", "B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], r), "C")
    out = te.compute((n, m), lambda i, j: te.max(c[i, j], 0.0), "out") if epilogue else c
    return te.create_prim_func([a, b, out])


def stencil(n, m):
    a = te.placeholder((n + 2, m + 2), "float32", "A")
    blur = te.compute((n + 2, m), lambda i, j: a[i, j] + a[i, j + 1] + a[i, j + 2], "blur")
    out = te.compute((n, m), lambda i, j: blur[i, j] + blur[i + 1, j] + blur[i + 2, j], "out")
    return te.create_prim_func([a, out])


FUNCTIONS = {
    "row": product(1, 60, 40),
    "product": product(20, 33, 48),
    "epilogue": product(17, 16, 40, epilogue=True),
    "stencil": stencil(9, 21),
}


def run(mod, fn):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(list(map(int, b.shape))) for b in fn.buffer_map.values()]
    arrays = [relaxvm.nd.array(a.astype("float32")) for a in arrays]
    relaxvm.build(mod, schedule=False)["main"](*arrays)
    return arrays[-1].numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_points_give_right_schedules_that_replay(name):
    fn, rng = FUNCTIONS[name], random.Random(7)
    space = Space(fn)
    default = space.default()
    assert default.key == key_of(schedule_function(fn, space.cpu))
    wanted = run(Schedule(fn).mod, fn)
    found = {default.key: default}
    for turn in range(12):
        parents = [*found.values()]
        near = space.near(rng.choice(parents).point, rng)
        one = (near, space.draw(rng), space.between(near.point, default.point, rng))[turn % 3]
        found.setdefault(one.key, one)
    assert len(found) >= 5
    workload = Workload(space.fn)
    for each in found.values():
        point = point_from_json(json.loads(json.dumps(each.point.as_json())))
        assert point == each.point and space.candidate(point).key == each.key
        saved = json.loads(json.dumps(TuningRecord(each.schedule.trace, workload, [1.0]).as_json()))
        replayed = TuningRecord.from_json(saved, workload).schedule(fn)
        assert key_of(replayed.mod["main"]) == each.key
        np.testing.assert_allclose(run(replayed.mod, fn), wanted, rtol=1e-4, atol=1e-4)


def test_a_record_of_the_space_answers_for_the_function_as_it_is_written():
    fn = FUNCTIONS["product"]
    space = Space(fn)
    database = MemoryDatabase()
    point = Point({"C": Levels(((2, 3), (1, 16), (4,)), 1, True)})
    workload = database.commit_workload(space.fn)
    trace = space.candidate(point).schedule.trace
    database.commit_tuning_record(TuningRecord(trace, workload, [1e-6]))
    assert database.query_schedule(fn) is not None
    with database:
        built = relaxvm.relax.transform.MetaScheduleApplyDatabase()(relaxvm.IRModule({"f": fn}))
    assert key_of(built["f"]) == space.candidate(point).key


@pytest.mark.parametrize(
    ("plan", "wrong"),
    [
        ({"tiles": [[1, 1], [1, 16]], "vector": 1}, "tiles of 2 loops, and there are 3"),
        ({"tiles": [[1, 1], [1, 16], [4]], "vector": 2}, "loop 2 is not one of the spatial loops"),
        ({"tiles": [[1, 1], [1], [4]], "vector": 1}, "loop 1 is spatial, it has two sizes"),
        ({"tiles": [[1, 1], [1, 0], [4]], "vector": 1}, "tiles of"),
        ({"tiles": [[1, -3], [1, 16], [4]], "vector": 1}, "tiles of"),
        ({"tiles": [[64, 64], [1, 16], [4]], "vector": 1}, "of loop 0, which has 20"),
    ],
)
def test_levels_by_hand_that_are_wrong(plan, wrong):
    sch = Schedule(FUNCTIONS["product"])
    before = sch.mod.script()
    with pytest.raises(ScheduleError, match=wrong):
        apply_plan(sch, "C", {"plan": "Levels", **plan})
    assert sch.mod.script() == before


def test_levels_of_odd_blocks():
    fn = te.create_prim_func([a := te.placeholder((5,), "float32"), te.compute((), lambda: a[0])])
    sch = Schedule(fn)
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    view = View(sch, block)
    assert Levels.random(view, cpu_model(None), random.Random(0)) is None
    assert "axes" in Levels(((1, 1),)).wrong(view)
    assert plan_from_json(Levels(((1, 1), (2,)), 0, True).as_json()).local


@pytest.mark.parametrize(
    "data", [None, {}, {"plans": 1}, {**Point().as_json(), "inside": {"C": "x"}}]
)
def test_points_that_are_none(data):
    with pytest.raises(ScheduleError, match="a point is saved"):
        point_from_json(data)


def test_picks_leave_all_as_usual():
    fn = FUNCTIONS["epilogue"]
    sch = Schedule(Space(fn).fn)
    picked = relaxvm.tir.schedule.plans.scheduled_by(sch, cpu_model(None), picks=Picks())
    assert key_of(picked.mod["main"]) == Space(fn).default().key
