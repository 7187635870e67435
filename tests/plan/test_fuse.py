"""The search for groups: bounds of savings, and paths through third groups."""

import pytest
from plan_programs import axis, hole, program

import ngraph as ng
from ngraph.plan import fuse
from ngraph.plan.planner import plan


def adam(sizes):
    """A step of Adam for parameters of these lengths, and a chain of products that reads some of them."""
    rate, results = hole(), []
    holes = [rate]
    scale = ng.sqrt(rate) * 0.1
    for k, n in enumerate(sizes):
        a = axis(n, f"A{k}")
        p, m, v = [ng.persistent_tensor([a], initial_value=0.5, name=f"{name}{k}") for name in "pmv"]
        g = hole(a)
        holes.append(g)
        new_m, new_v = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
        results += [ng.assign(m, new_m), ng.assign(v, new_v), ng.assign(p, p - scale * new_m / (ng.sqrt(new_v) + 1e-8))]
    return program([ng.doall(results)], *holes)


def layers(widths):
    """Products with norms between them, whose reductions and elementwise values can be grouped in many ways."""
    batch = axis(9, "batch")
    x = h = hole(batch, axis(widths[0], "W0"))
    holes = [x]
    for k, n in enumerate(widths[1:], 1):
        w = hole(h.axes[-1], axis(n, f"W{k}"))
        holes.append(w)
        y = ng.dot(h, w)
        a = y.axes[-1]
        h = ng.tanh((y - ng.mean(y, reduction_axes=[a])) * ng.sum(y * y, reduction_axes=[batch]))
    return program([h, ng.sum(h, out_axes=()), ng.max(x, out_axes=())], *holes)


def programs():
    return [adam([3, 5, 300, 7, 5000, 40, 11]), layers([20, 70, 5, 64]), layers([300, 200, 100])]


@pytest.mark.parametrize("k", range(3))
def test_no_merge_saves_more_than_its_bounds(k, monkeypatch):
    seen = []

    def price(self, a, b, before=fuse._Merge.price):
        seconds = before(self, a, b)
        seen.append((self.most(a, b), self.most(a, b, closely=True), a.seconds + b.seconds - seconds))
        return seconds

    monkeypatch.setattr(fuse._Merge, "price", price)
    plan(programs()[k])
    assert len(seen) > 5 and all(gain <= close <= first for first, close, gain in seen)


@pytest.mark.parametrize("k", range(3))
def test_paths_through_third_groups(k, monkeypatch):
    told, found = [], []

    def reaches(self, a, b):
        """Whether a path of more than one step leads from a to b, by a search that knows no order."""
        todo, seen = [g for g in self.after[a] if g is not b], set()
        while todo:
            g = todo.pop()
            if g is b:
                return True
            if g not in seen:
                seen.add(g)
                todo.extend(self.after[g])
        return False

    def apart(self, a, b, before=fuse._Merge.apart):
        told.append(before(self, a, b))
        assert not told[-1] or reaches(self, a, b) or reaches(self, b, a)
        return told[-1]

    def paths(self, a, b, before=fuse._Merge.paths):
        made = before(self, a, b)
        found.append(made is None)
        assert found[-1] == (reaches(self, a, b) or reaches(self, b, a))
        return made

    monkeypatch.setattr(fuse._Merge, "apart", apart)
    monkeypatch.setattr(fuse._Merge, "paths", paths)
    plan(programs()[k])
    assert len(told) > 5 and (k == 0 or True in told) and False in found
