"""Exported programs changed at random, read and run: `python tests/frontends/torch/mutations.py COUNT SEED`.

As for ONNX files (tests/frontends/onnx/mutations.py): a file runs or is refused with an error of ours, in little time and memory, and
runs no code. The bytes of an archive, or of a part in it, are changed, or values in the JSON that describes the program.
"""

import io
import json
import os
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TEXTS = ("", "x", "s77", "aten.add.Tensor", "torch.ops.aten.mul.Tensor", "__import__('os').abort()", "Symbol('s0')", "../x", "weight_0")
NUMBERS = (0, 1, -1, 2, 7, 64, 1 << 31, -(1 << 31), 1 << 62, 1 << 70, 0.5, 1e300)


def sources():
    """Small programs of several kinds, as the bytes of their archives."""
    import torch
    from torch.export import Dim, export

    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(4, 4))
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x):
            y = self.norm(x @ self.w)
            return {"y": torch.cond(y.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,)), "n": x.shape[0]}

    open_ = {"dynamic_shapes": ({0: Dim("n", min=2, max=64)},)}
    programs = [
        export(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU(), torch.nn.LayerNorm(3)), (torch.ones(5, 4),), **open_),
        export(Branches(), (torch.ones(5, 4),), **open_),
        export(torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.MaxPool2d(2), torch.nn.Flatten()), (torch.ones(1, 2, 8, 8),)),
        export(torch.nn.Embedding(5, 3), (torch.tensor([1, 2]),)),
    ]
    for program in programs:
        file = io.BytesIO()
        torch.export.save(program, file)
        yield file.getvalue()


def parts(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info.filename) for info in archive.infolist()}


def archive_of(held):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return file.getvalue()


def by_bytes(content, rng, others):
    """The archive with a few bytes changed, or one of its parts, with a sum that fits."""
    from tests.frontends.onnx import mutations

    if rng.random() < 0.3:
        return mutations.by_bytes(content, rng, others)
    held = parts(content)
    name = rng.choice(list(held))
    if rng.random() < 0.15:
        del held[name]
    else:
        held[name] = mutations.by_bytes(held[name], rng, list(held.values()))
    return archive_of(held)


def by_fields(content, rng, others):
    """The archive with a few values of its JSON changed: numbers, texts, lists, and what stands elsewhere in it."""
    held = parts(content)
    name = rng.choice([n for n in held if n.endswith(".json")])
    said = json.loads(held[name])
    every = nodes(said)
    for _ in range(rng.randint(1, 3)):
        place, key = rng.choice(every)
        old = place.get(key) if isinstance(place, dict) else place[key] if key < len(place) else None
        kind = rng.randrange(5)
        if kind == 0:
            if isinstance(place, dict):
                place.pop(key, None)
            else:
                del place[key : key + 1]
        elif kind == 1 or old is None:
            other, k = rng.choice(every)
            if isinstance(other, dict) and k in other and not isinstance(other[k], (dict, list)):
                old = other[k]
            put(place, key, old)
        elif isinstance(old, bool):
            put(place, key, not old)
        elif isinstance(old, (int, float)):
            put(place, key, rng.choice(NUMBERS))
        elif isinstance(old, str):
            texts = [p[k] for p, k in every if isinstance(p, dict) and isinstance(p.get(k), str)]
            put(place, key, rng.choice((rng.choice(TEXTS), rng.choice(texts), old[:-1], old + "0")))
        elif isinstance(old, list) and old:
            rng.choice((old.reverse, old.pop, lambda old=old: old.append(old[0])))()
        else:
            put(place, key, rng.choice((None, [], {}, 1, "x")))
    held[name] = json.dumps(said).encode()
    return archive_of(held)


def put(place, key, value):
    if isinstance(place, dict) or key < len(place):
        place[key] = value


def nodes(said):
    """Every place in nested JSON: what holds it, and the key."""
    found, todo = [], [said]
    while todo:
        value = todo.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            found.append((value, key))
            todo.append(value[key])
    return found


def taken(content, folder, name):
    """Returns how an exported program ends, as `ended` does."""
    import ngraph as ng
    import ngraph.transformers as ngt
    from tests.frontends.onnx.mutations import ended

    path = os.path.join(folder, "model.pt2")
    with open(path, "wb") as file:
        file.write(content)
    return ended(lambda: ng.torch.load(path, ngt.allocate_transformer(name)))


if __name__ == "__main__":
    sys.path.insert(0, ROOT)
    from tests.frontends.onnx import mutations

    mutations.main(__file__, lambda files: list(sources()), (by_bytes, by_fields), taken, ".pt2")
