"""A kind of cases that shows what the runner does: a case says what its check is to do."""

import os
import time


def draw(seed):
    if seed == 99:
        raise ValueError("no case has seed 99")
    return {"do": "look", "seed": seed}


def check(case):
    if case["do"] == "end":
        os._exit(3)
    if case["do"] == "wait":
        time.sleep(600)
    if case["do"] == "differ" or case.get("seed", 0) == 13:
        return "differs always"
    import ngraph as ng
    from ngraph.runtime import state

    kept = ng.config.cache or "nothing"
    return f"planted, and keeps {kept}" if hasattr(state.Device.get, "__wrapped__") else None


def smaller(case):
    if case["do"] == "differ" and case["size"]:
        yield {**case, "size": case["size"] - 1}


def program(case):
    return f"# {case}\n"
