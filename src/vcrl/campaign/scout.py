"""A process of its own, `python -m vcrl.campaign.scout`: what trainings would be, for those who do without JAX.

Reads pairs of method and task with their settings from standard input, writes the folder's digest, the budget and what
one seed needs. Nothing is allocated and nothing compiled.
"""

import json
import sys
import traceback
from dataclasses import replace
from typing import Any

from vcrl.core.errors import UserError, told
from vcrl.training.engine import engine_of
from vcrl.training.memory import kept_in_bytes, need_in_bytes
from vcrl.training.plan import Plan, Schedule, make_plan
from vcrl.training.run import rehearse


def scout(asked: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    sizes: dict[Any, tuple[int, int, int, int]] = {}
    for method, task in asked["pairs"]:
        try:
            plan = plan_of(method, task, asked)
        except UserError as error:
            return {"error": f"{method} on {task}: {error}"}
        key = (plan.config, plan.task.spec, plan.capacity)
        if key not in sizes:
            one = replace(plan, seeds=plan.seeds[:1])
            try:
                rehearse(one)
            except Exception as error:  # a user's loss may fail in any way
                where = traceback.extract_tb(error.__traceback__)[-1]
                return {"error": f"{method} on {task}: {told(error)} ({where.filename}, line {where.lineno})"}
            engine = engine_of(one)
            sizes[key] = (*need_in_bytes(one, engine, gpu=True), kept_in_bytes(one, engine))
        replay, weights, working, kept = sizes[key]
        found.append(
            {
                "method": method,
                "task": plan.task.name,
                "room": plan.task.suite,
                "digest": plan.digest,
                "budget": plan.budget,
                "protocol_hash": plan.protocol.hash,
                "replay": replay,
                "weights": weights,
                "working": working,
                "kept": kept,
                "log": plan.schedule.log,
            }
        )
    return {"found": found}


def plan_of(method: str, task: str, asked: dict[str, Any]) -> Plan:
    options = dict(asked["options"])
    steps, protocol = options.pop("steps", None), options.pop("protocol", None)
    schedule = Schedule(**{name.removesuffix("_every"): every for name, every in options.items()})
    return make_plan(method, task, asked["seeds"], steps, asked["changes"], schedule, protocol)


if __name__ == "__main__":
    json.dump(scout(json.load(sys.stdin)), sys.stdout)
