"""SavedModels changed at random, read and run: `python tests/frontends/tensorflow/mutations.py COUNT SEED`.

As for ONNX files (tests/frontends/onnx/mutations.py): a model runs or is refused with an error of ours, in little time and memory. The
bytes of `saved_model.pb`, of the checkpoint's index or of a shard are changed, or fields of the messages in the first: numbers, names,
repeated fields. Most changed indexes get handles and sums that agree with their bytes, so that what is behind these is read too.
"""

import io
import os
import shutil
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
NUMBERS = (0, 1, -1, 2, 7, 64, 1 << 20, 1 << 30, (1 << 31) - 1, -(1 << 31))
WIDE = (*NUMBERS, 1 << 40, 1 << 60, (1 << 63) - 1, -(1 << 63))


def sources():
    """Yields small SavedModels as the bytes of zip files."""
    for file, names in (("models.zip", ("mlp", "cnn", "lstm", "gru", "embedding", "attention", "counter")), ("tables.zip", ("tables",))):
        with zipfile.ZipFile(os.path.join(HERE, file)) as archive:
            for name in names:
                held = {n: archive.read(n) for n in archive.namelist() if n.startswith(f"{name}/") and not n.endswith("/")}
                yield packed({n.partition("/")[2]: data for n, data in held.items() if "fingerprint" not in n})


def packed(held):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return file.getvalue()


def parts(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def by_bytes(content, rng, others):
    """Returns a model of which a few bytes of one file are changed."""
    from tests.frontends.onnx import mutations

    held = parts(content)
    name = rng.choice(list(held))
    change = summed if name.endswith(".index") and rng.random() < 0.8 else mutations.by_bytes
    held[name] = change(held[name], rng, list(held.values()))
    return packed(held)


def summed(data, rng, others):
    """Returns an index of which an entry or a block was changed, with handles and sums as a writer of such a table would write them.

    A table is: data blocks, a block of facts, a block that names the data blocks, a footer with the handles of the last two; each block is
    followed by a byte for its compression and a sum of four bytes (LevelDB, doc/table_format.md).
    """
    from ngraph.frontends.positional import leveldb
    from ngraph.frontends.tensorflow import bundle
    from tests.frontends.onnx import mutations

    rows, kind = list(leveldb.table(data, "a source", bundle._checksum)), rng.randrange(4)
    if kind < 2:  # an entry's message, or its name
        k = rng.randrange(len(rows))
        key, value = rows[k]
        if kind:
            rows[k] = mutations.by_bytes(key or b"/", rng, others), value
        else:
            rows[k] = key, mutations.by_bytes(value or b"/", rng, others)
        return leveldb.written(rows, bundle._checksum)
    if kind == 2:  # the order and the number of the entries
        rng.shuffle(rows)
        return leveldb.written(rows[: rng.randint(0, len(rows))], bundle._checksum)
    return relaid(leveldb.written(rows, bundle._checksum), rng, others)


def relaid(data, rng, others):
    """Returns a table of one data block, of which this, the block of facts or the one that names it was changed."""
    from ngraph.frontends.positional import leveldb
    from ngraph.frontends.tensorflow import bundle
    from tests.frontends.onnx import mutations

    made, changed, at = bytearray(), rng.choice((0, 0, 2, 2, 1)), len(data) - leveldb.FOOTER
    numbers = []
    for _ in range(4):
        number, at = leveldb.varint(data, at)
        numbers.append(number)
    facts, named = (data[start : start + size] for start, size in (numbers[:2], numbers[2:]))
    ((key, handle),) = leveldb.block(data, *numbers[2:], "a source", bundle._checksum)
    start, at = leveldb.varint(handle, 0)
    size, _ = leveldb.varint(handle, at)
    handles = []
    for k, block in enumerate((data[start : start + size], facts, named)):
        if k == 2 and changed != 2:
            block = leveldb.packed_block([(key, handles[0])])
        block = mutations.by_bytes(block, rng, others) if k == changed else block
        handles.append(leveldb.coded(len(made)) + leveldb.coded(len(block)))
        made += block + b"\0" + bundle._checksum(block + b"\0").to_bytes(4, "little")
    return bytes(made) + (handles[1] + handles[2]).ljust(leveldb.FOOTER - 8, b"\0") + leveldb.MAGIC.to_bytes(8, "little")


def by_fields(content, rng, others):
    """Returns a model of which a few fields of its message are changed."""
    from ngraph.frontends.tensorflow.messages import classes

    held = parts(content)
    saved = classes()["SavedModel"]()
    saved.ParseFromString(held["saved_model.pb"])
    every = list(messages(saved))
    for _ in range(rng.randint(1, 3)):
        message = rng.choice(every)
        fields = message.ListFields()
        if fields:
            change(message, *rng.choice(fields), rng, every)
    held["saved_model.pb"] = saved.SerializeToString()
    return packed(held)


def messages(message):
    """Yields a message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = list(value.values()) if hasattr(next(iter(value.values()), 0), "ListFields") else []
        else:
            values = value if hasattr(value, "add") else [value]
        for inner in values:
            yield from messages(inner)


def change(message, field, value, rng, every):
    """Changes one field: it goes, or gets another number, text or message."""
    repeated = not hasattr(value, "ListFields") and not isinstance(value, (int, float, str, bytes))
    if rng.random() < 0.2:
        message.ClearField(field.name)
    elif repeated and hasattr(value, "values"):
        key = rng.choice(list(value))
        del value[key]
    elif repeated and field.message_type is not None:
        k = rng.randrange(len(value))
        if rng.random() < 0.5:
            del value[k]
        else:
            others = [m for m in every if m.DESCRIPTOR is value[k].DESCRIPTOR]
            value[k].CopyFrom(rng.choice(others))
    elif repeated:
        value[rng.randrange(len(value))] = other(value[0], field, rng, every)
    elif field.message_type is not None:
        others = [m for m in every if m.DESCRIPTOR is value.DESCRIPTOR and m is not value]
        if others:
            copy = type(value)()
            copy.CopyFrom(rng.choice(others))
            value.CopyFrom(copy)
    else:
        setattr(message, field.name, other(value, field, rng, every))


def other(value, field, rng, every):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        numbers = WIDE if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else NUMBERS
        unsigned = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
        return rng.choice([n for n in numbers if not unsigned or n >= 0])
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if isinstance(value, bytes):
        return rng.choice((b"", value[:-1], value + b"\xff", b"\0" * 8))
    names = [m.name for m in every if m.DESCRIPTOR.name == "NodeDef"] + [m.op for m in every if m.DESCRIPTOR.name == "NodeDef"]
    return rng.choice(("", value[:-1], value + ":1", "^" + value, rng.choice(names), "../../x"))


def taken(content, folder, name):
    """Returns how a model ends, as `ended` does."""
    import ngraph as ng
    import ngraph.transformers as ngt
    from tests.frontends.onnx.mutations import ended

    home = os.path.join(folder, "model")
    shutil.rmtree(home, ignore_errors=True)
    for part, data in parts(content).items():
        at = os.path.join(home, part)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        with open(at, "wb") as file:
            file.write(data)
    return ended(lambda: ng.tensorflow.load(home, ngt.allocate_transformer(name)))


if __name__ == "__main__":
    sys.path.insert(0, ROOT)
    from tests.frontends.onnx import mutations

    mutations.main(__file__, lambda files: list(sources()), (by_bytes, by_fields), taken, ".zip")
