"""TensorFlow's model files as they are found: SavedModels, graphs, meta graphs with checkpoints; their signatures and variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import ArgumentError, FileError, NgraphError, ParseError, nearest
from ngraph.frontends.positional.ports import Port
from ngraph.frontends.positional.reader import DAMAGED
from ngraph.frontends.positional.trace import ModelTrace
from ngraph.frontends.positional.values import ConstantArray
from ngraph.frontends.positional.walk import Frame
from ngraph.frontends.tensorflow.bundle import Checkpoint
from ngraph.frontends.tensorflow.dtypes import array_of, make_constant, numpy_type, shape_of, type_name
from ngraph.frontends.tensorflow.format import inside
from ngraph.frontends.tensorflow.graph import HANDLES, FunctionLibrary, GraphBody, Node, assigned, body_of_graph, named, node_of, walk_body
from ngraph.frontends.tensorflow.messages import parsed, parsed_text
from ngraph.frontends.tensorflow.structure import structured
from ngraph.parts.walk import closure

OWN = ("__saved_model_init_op", "__saved_model_train_op")  # signatures that are TensorFlow's own notes
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"  # what a checkpoint calls the objects that it was made of
MAIN = ("saved_model_main_op", "legacy_init_op", "table_initializer")  # collections of nodes that are run when a model is loaded


class Signature(NamedTuple):
    """A way to call a model: ports of inputs and outputs, and the value of the graph that each stands for."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    values: dict[str, str]  # of inputs by port
    results: dict[str, str]  # of outputs by port


class ModelFile(FunctionLibrary):
    """A model as its file has it.

    graph       its main graph                            signatures  the ways to call it
    handles     the variable's name by the node that makes its handle       keys  the name in the checkpoint by variable
    parts       the part of the checkpoint's array that a partitioned variable has, by variable
    collections  names of nodes that the file has kept together, by the name of the collection
    home        the folder of the file                 few_decide  whether few numbers of the inputs may choose branches (`ModelTrace.few`)
    """

    def __init__(self, name: str, graph: Any, signatures: dict[str, Signature], meta: Any = None, checkpoint: str | None = None):
        super().__init__(graph, structured)
        self.name, self.proto = name, graph
        self.graph = structured(body_of_graph(graph, name), self)
        self.handles = {node.name: shared_name(node) for node in self.graph.nodes.values() if node.op in HANDLES}
        self.keys: dict[str, str] = {}
        self.parts: dict[str, tuple[slice, ...]] = {}
        self._checkpoint_path, self.home = checkpoint, os.path.dirname(checkpoint or "")
        self._stored: dict[str, ConstantArray] = {}
        self.initializers: list[str] = []  # nodes that fill tables
        self.assets: dict[str, str] = {}  # paths of files by the value of the graph that names them
        self.filled = False
        self.few_decide = True
        self.shared: dict[int, dict[str, Any]] = {}  # variables that readers made, by transformer
        self.by_value: dict[str, Signature] = {}  # ways to call it by values of the graph, as `Session.run` names them
        if len(set(self.handles.values())) < len(self.handles):
            self.handles = {node: node for node in self.handles}
        self.restored_tables: list[tuple[str, str, str]] = []  # the table, and the checkpoint's names of its keys and values
        if meta is not None and meta.saver_def.restore_op_name:
            for home, key, part in restored(self, meta.saver_def.restore_op_name, self.restored_tables):
                self.keys[self.handles.get(home, home)] = key
                if part:
                    self.parts[self.handles.get(home, home)] = part
        if meta is not None and meta.object_graph_def.nodes:
            self._join_objects(meta.object_graph_def)
        self.signatures = signatures
        self.collections = {} if meta is None else {key: _members(said) for key, said in meta.collection_def.items()}

    def _join_objects(self, objects: Any) -> None:
        """Makes one variable of the handle that functions are bound to and the one that is restored, where a file has two for one object.

        Keras exports each of its variables as another one, to which no function is bound, and stores that. Which object a handle
        belongs to is said by the functions that the graph calls; the checkpoint has the same objects, with what they are stored as.
        """
        bound: dict[str, int] = {}
        for node in self.graph.nodes.values():
            if node.called in objects.concrete_functions:
                ids = objects.concrete_functions[node.called].bound_inputs
                bound.update(zip(map(node_of, node.takes[len(node.takes) - len(ids) :]), ids, strict=False))
        alone = {node: at for node, at in bound.items() if node in self.handles and self.handles[node] not in self.keys}
        if not alone or self.checkpoint is None or OBJECTS not in self.checkpoint:
            return
        stored = parsed("ObjectGraph", self.checkpoint.get_tensor(OBJECTS)[()], "the checkpoint's graph of objects").nodes
        same, todo = {0: 0}, [0]  # objects of the checkpoint by those of the file, which are reached by the same names
        while todo:
            at = todo.pop()
            there = {child.local_name: child.node_id for child in stored[same[at]].children}
            for child in objects.nodes[at].children:
                if child.local_name in there and child.node_id not in same:
                    same[child.node_id] = there[child.local_name]
                    todo.append(child.node_id)
        restored_as = {key: name for name, key in self.keys.items()}
        for home, at in alone.items():
            found = [a.checkpoint_key for a in stored[same[at]].attributes if a.checkpoint_key in restored_as] if at in same else []
            if len(found) == 1:
                twin, self.keys[self.handles[home]] = restored_as[found[0]], found[0]
                self.handles.update({other: self.handles[home] for other, name in self.handles.items() if name == twin})
                self.keys.pop(twin)

    def initialize(self, g: ModelTrace) -> None:
        """Fills the model's tables, once. Those that the checkpoint holds come from there."""
        if self.filled or self.initializing:
            return
        self.initializing = True
        try:
            frame = Frame()
            frame.names.update({value: ConstantArray(np.array(path, object)) for value, path in self.assets.items()})
            walk_body(g, frame, GraphBody(self.name, list(self.graph.nodes.values()), [], [], self.initializers), [], self)
            for home, *keys in self.restored_tables:
                if self.checkpoint is not None and all(key in self.checkpoint for key in keys):
                    arrays = [self.checkpoint.get_tensor(key).ravel().tolist() for key in keys]
                    self.tables.setdefault(home, {}).update(zip(*arrays, strict=True))
            self.filled = True
        finally:
            self.initializing = False

    def put(self, name: str, value: ConstantArray) -> None:
        """Sets the array that a variable starts with."""
        self._stored[name] = value

    def check_asset(self, path: str) -> None:
        """Raises ParseError for a path that is not a file of the model's assets."""
        if path not in self.assets.values():
            raise ParseError(f"{path!r} is not an asset of {self.name}", fix="load the SavedModel's folder; other files are not read")

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The arrays of the variables; None where the model has none. Raises FileError where its files are missing."""
        return None if self._checkpoint_path is None else Checkpoint(self._checkpoint_path)

    def stored(self, name: str) -> ConstantArray | None:
        """See `FunctionLibrary.stored`."""
        if name not in self._stored:
            key = self.keys.get(name, name)
            if self.checkpoint is None or key not in self.checkpoint:
                return None
            self._stored[name] = ConstantArray(self.checkpoint.get_tensor(key)[self.parts.get(name, ())], name)
        return self._stored[name]

    def empty(self, name: str) -> ConstantArray | None:
        """Returns zeros for a variable that a call has to write first; None where the file does not say its shape."""
        attr = next(self.graph.nodes[node].proto.attr for node, of in self.handles.items() if of == name)
        shape, dtype = shape_of(attr["shape"].shape), numpy_type(attr["dtype"].type)
        if shape is None or None in shape or dtype is None or dtype.hasobject:
            return None
        self.unset.add(name)
        return ConstantArray(np.zeros([s for s in shape if s is not None], dtype), name)

    def written(self) -> set[str]:
        """Returns the names of variables that a call of any signature may write."""
        handles = {f"{node}:0": name for node, name in self.handles.items()}
        found: set[str] = set()
        for said in (*self.signatures.values(), *self.by_value.values()):
            found |= assigned(self, self.graph, list(said.results.values()), handles, list(said.values.values()))
        return found

    def signature(self, name: str | None) -> Signature:
        """Returns a signature by name; None: the default one. Raises ArgumentError where there is none."""
        if name is None:
            name = "serving_default" if "serving_default" in self.signatures else next(iter(self.signatures), "")
        if name not in self.signatures and name not in self.by_value:
            there = ", ".join(self.signatures) or "none"
            raise ArgumentError(f"{self.name} has no signature {name!r}", fix=nearest(name, list(self.signatures)) or f"there are {there}")
        return self.by_value[name] if name in self.by_value else self.signatures[name]


def by_values(file: ModelFile, fetched: list[str], fed: list[str]) -> Signature:
    """Returns the signature of a call that feeds values of the graph and fetches others. Raises ArgumentError for unknown ones.

    A fetched name without a colon is a node: it is run, and gives its first result, if it has one.
    """
    nodes = file.graph.nodes
    for name in (*fetched, *fed):
        if node_of(named(name)) not in nodes:
            raise ArgumentError(f"{file.name} has no value {name!r}", fix=nearest(name, list(nodes)) or "name a node and a result: x:0")
    homes = [(name, nodes[node_of(named(name))]) for name in fed]
    inputs = tuple([placeholder(n, name) if n.op.startswith("Placeholder") else any_port(name) for name, n in homes])
    outputs = tuple(map(any_port, fetched))
    return Signature("", inputs, outputs, {name: named(name) for name in fed}, {name: named(name) for name in fetched})


def any_port(name: str) -> Port:
    """Returns a port of which the file says no more than its name."""
    return Port(name, "tensor", None, None, "tensor")


def shared_name(node: Node) -> str:
    """Returns what a variable or a table is called: its shared name, or that of its node."""
    said = node.proto.attr["shared_name"].s if "shared_name" in node.proto.attr else b""
    return said.decode("utf-8", "replace") or node.name


# ---- variables ----------------------------------------------------------------------------------------------------------


def restored(file: ModelFile, restore: str, tables: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, tuple[slice, ...]]]:
    """Yields each variable's node, the name that the model's restore op reads it by, and the part of that array; () for all of it.

    The op is followed, no name is guessed. tables: gets the name of each table that it fills, and of its keys and values.
    """
    at = file.graph.nodes.get(node_of(named(restore)))
    if at is None:
        return
    if at.called:  # TensorFlow 2: a function takes the file's name and the handles
        body = file.function(at.called)
        homes, keys = dict(zip(body.takes, at.takes, strict=False)), _Restored(body)
        for node in body.nodes.values():
            if node.op in ("LookupTableImportV2", "AssignVariableOp"):
                home, (key, *values) = homes.get(body.source(node.takes[0], FORMS), ""), map(keys.of, node.takes[1:])
                table = file.graph.maker(home) if values else None
                if key is not None and table is not None and values[0] is not None:
                    tables.append((shared_name(table), key[0], values[0][0]))
                elif key is not None and home and not values:
                    yield node_of(file.graph.source(home, FORMS)), *key
        return
    nodes, keys = file.graph.nodes, _Restored(file.graph)  # TensorFlow 1: a group of assignments
    group = closure([at.name], lambda name: (*nodes[name].after, *map(node_of, nodes[name].takes)) if name in nodes else ())
    for step in nodes.values():
        key = keys.of(step.takes[1]) if step.name in group and step.op in ("Assign", "AssignVariableOp") else None
        if key is not None:
            yield node_of(file.graph.source(step.takes[0], FORMS)), *key


FORMS = ("Identity", "Cast", "Reshape")  # ops that stand between a variable and what is restored


class _Restored:
    """The values of a graph that RestoreV2 gives."""

    def __init__(self, body: GraphBody):
        self.body = body
        self.texts: dict[str, Sequence[bytes]] = {}  # of constants: one has the names of all variables

    def of(self, value: str) -> tuple[str, tuple[slice, ...]] | None:
        """Returns the name in the checkpoint, and the part, of a value that RestoreV2 gives; None for another value."""
        value = self.body.source(value, FORMS)
        node = self.body.nodes.get(node_of(value))
        if node is None or node.op != "RestoreV2":
            return None
        k = int(value.rpartition(":")[2])
        said = []
        for given in node.takes[1:3]:  # names, and shapes with slices
            found = self._texts(self.body.source(given, FORMS))
            said.append(found[k].decode("utf-8", "replace") if k < len(found) else "")
        return (said[0], _part(said[1])) if said[0] else None

    def _texts(self, value: str) -> Sequence[bytes]:
        """Returns the texts of a constant; none for another value."""
        if value not in self.texts:
            node = self.body.nodes.get(node_of(value))
            self.texts[value] = (
                array_of(node.proto.attr["value"].tensor).ravel().tolist() if node is not None and node.op == "Const" else ()
            )
        return self.texts[value]


def _part(text: str) -> tuple[slice, ...]:
    """Returns the slices in a text such as `40 3 0,10:-`: the whole shape, then start and length of each dim, `-` for all of it."""
    last = text.split(" ")[-1] if text else ""
    found = []
    for piece in last.split(":") if last else ():
        start, comma, length = piece.partition(",")
        if piece != "-" and not (comma and start.isdigit() and length.isdigit()):
            raise ParseError(f"{text!r} is not a slice of a variable", fix="is the file damaged?")
        found.append(slice(None) if piece == "-" else slice(int(start), int(start) + int(length)))
    return tuple(found) if any(f != slice(None) for f in found) else ()


# ---- files --------------------------------------------------------------------------------------------------------------


def _members(collection: Any) -> list[str]:
    """Returns the names of nodes in a collection: of a list of nodes, or of variables."""
    if collection.WhichOneof("kind") == "node_list":
        return list(collection.node_list.value)
    found = [parsed("VariableDef", data, "a collection").variable_name for data in collection.bytes_list.value]
    return [name for name in found if name]


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raises ParseError where a damaged file makes this block raise an error of Python's."""
    try:
        yield
    except NgraphError:
        raise
    except DAMAGED as error:
        raise ParseError(f"{name} cannot be read: {type(error).__name__}: {error}", fix="is the file damaged?") from error


def opened(source: Any, tags: Any = None, checkpoint: str | None = None) -> ModelFile:
    """Returns the model of a path, of bytes, or of a message of TensorFlow's own.

    checkpoint: the prefix of the checkpoint of a meta graph, by default its own.
    Raises FileError where there is nothing, ParseError for damaged files, ArgumentError for tags that no graph of it has.
    """
    if isinstance(source, ModelFile):
        return source
    with readable(os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the graph"):
        return _opened(source, tags, checkpoint)


def _opened(source: Any, tags: Any, checkpoint: str | None) -> ModelFile:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return of_graph(parsed("GraphDef", source, "the graph"), "graph")
    if not isinstance(source, (str, os.PathLike)):
        return _of_object(source)
    path = os.fspath(source)
    if os.path.isdir(path):
        inner = inside(path)
        if inner is None:
            raise FileError(f"{path} is not a SavedModel: it has no saved_model.pb", fix="give the folder that has one")
        return _of_saved(_message("SavedModel", inner), path, tags)
    if os.path.basename(path) in ("saved_model.pb", "saved_model.pbtxt"):
        return opened(os.path.dirname(path) or ".", tags)
    if path.endswith(".meta"):
        meta = _message("MetaGraphDef", path)
        return _of_meta(meta, os.path.basename(path), path[:-5] if checkpoint is None else os.fspath(checkpoint))
    return of_graph(_message("GraphDef", path), os.path.basename(path))


def _message(kind: str, path: str) -> Any:
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", fix="check the path") from error
    if path.endswith("txt"):
        return parsed_text(kind, data.decode("utf-8", "replace"), path)
    made = parsed(kind, data, path)
    if data and not made.ListFields():
        raise ParseError(f"{path} holds nothing that a {kind} has", fix="is it another file?")
    return made


def _of_object(source: Any) -> ModelFile:
    """Returns the model of an object of TensorFlow's: a GraphDef, a graph, or a concrete function."""
    if hasattr(source, "as_graph_def"):  # tf.Graph
        source = source.as_graph_def()
    elif hasattr(source, "graph") and hasattr(source.graph, "as_graph_def"):
        return _of_function(source)
    if not hasattr(source, "SerializeToString"):
        said = f"a model is loaded from a path, bytes, a GraphDef, a graph or a function, not from {type(source).__name__}"
        raise ArgumentError(said, fix="give its path")
    return of_graph(parsed("GraphDef", source.SerializeToString(), "the graph"), "graph")


def _of_function(source: Any) -> ModelFile:
    """Returns the model of a concrete function. What it has captured are constants, and variables that start with what they hold now."""
    graph = parsed("GraphDef", source.graph.as_graph_def(add_shapes=True).SerializeToString(), "the function")
    nodes, variables = {n.name: n for n in graph.node}, {id(v.handle): v for v in source.variables}
    count = len(source.inputs) - len(source.captured_inputs)
    starts = dict[str, Any]()
    for t, value in zip(source.inputs[count:], source.captured_inputs, strict=True):
        node, variable = nodes[t.op.name], variables.get(id(value))
        if variable is not None:
            node.op, node.attr["shared_name"].s = "VarHandleOp", variable.name.removesuffix(":0").encode()
            starts[node.name] = variable
        elif numpy_type(node.attr["dtype"].type) not in (None, np.dtype(object)):
            make_constant(node, np.asarray(value))
    file = of_graph(graph, source.name.decode(), [t.name for t in source.inputs[:count]], [t.name for t in source.outputs])
    for key, variable in starts.items():
        file.put(file.handles[key], ConstantArray(np.asarray(variable), file.handles[key]))
    return file


def of_graph(graph: Any, name: str, inputs: Any = None, outputs: Any = None) -> ModelFile:
    """Returns the model of a GraphDef: its placeholders are inputs, and what no node uses, for a check either, is outputs."""
    if not graph.node:
        raise ParseError(f"{name} has no nodes", fix="is it another file?")
    file = ModelFile(name, graph, {})
    body = file.graph
    every = [i for n in graph.node for i in n.input]
    used = {node_of(named(i)) for i in every} | {node_of(v) for n in body.nodes.values() for v in n.takes}
    used |= {i[1:] for i in every if i.startswith("^")} - {a for n in body.nodes.values() for a in n.after}  # what checks alone wait for
    starts = [n for n in body.nodes.values() if n.op in ("Placeholder", "PlaceholderV2") and numbers(n)]
    given = [f"{n.name}:0" for n in starts] if inputs is None else [named(v) for v in inputs]
    values = {node_of(v): v for v in given if numbers(body.nodes[node_of(v)])}
    if outputs is None:
        fed = depending(body, [n.name for n in starts])
        unfit = depending(body, [n.name for n in body.nodes.values() if BEYOND.match(n.op)], True)
        silent = ("Const", "Placeholder", *HANDLES)
        ends = [n for n in body.nodes.values() if n.name not in used and n.op not in silent and (n.name in fed or not starts)]
        ends = [n for n in ends if not n.op.startswith(("Assign", "Apply")) and n.name not in unfit]
        results = {n.name: v for n in ends if not body.silent(v := f"{n.name}:0")}
    else:
        results = {node_of(named(v)) + ("" if named(v).endswith(":0") else f"_{v.rpartition(':')[2]}"): named(v) for v in outputs}
    ports = tuple([placeholder(body.nodes[node_of(v)], key) for key, v in values.items()])
    signature = Signature("serving_default", ports, tuple(map(any_port, results)), values, results)
    file.signatures = {signature.name: signature}
    return file


# Ops on files and queues, and summaries: what needs them is no output of a graph, and can be fetched where they are fed.
BEYOND = re.compile(r"(Save|Restore|MergeV2Checkpoints|ShardedFile|\w*Queue|(Read|Write)File|\w*Reader|\w*Iterator)|\w+Summary(V2)?$")


def depending(body: GraphBody, names: list[str], after: bool = False) -> set[str]:
    """Returns the nodes that need one of these, by name, and these; after: also those that wait for one."""
    users: dict[str, list[str]] = {}
    for n in body.nodes.values():
        for name in (*map(node_of, n.takes), *(n.after if after else ())):
            users.setdefault(name, []).append(n.name)
    return closure(names, lambda name: users.get(name, ()))


def numbers(node: Node) -> bool:
    """Returns whether a placeholder takes an array, rather than the handle of a variable."""
    return numpy_type(node.proto.attr["dtype"].type) is not None


def placeholder(node: Node, key: str) -> Port:
    """Returns the port of a placeholder."""
    attr = node.proto.attr
    return Port(key, f"tensor({type_name(attr['dtype'].type)})", _said_shape(attr), numpy_type(attr["dtype"].type), "tensor")


def _said_shape(attr: Any) -> tuple[int | None, ...] | None:
    """Returns the shape that the attributes of a placeholder say."""
    shape = shape_of(attr["shape"].shape) if "shape" in attr else None
    if shape == () and "_output_shapes" in attr and len(attr["_output_shapes"].list.shape):
        return shape_of(attr["_output_shapes"].list.shape[0])
    return shape


def _of_saved(saved: Any, folder: str, tags: Any) -> ModelFile:
    """Returns the graph of a SavedModel that has these tags; `serve`, or the only one, by default."""
    if not saved.meta_graphs:
        raise ParseError(f"{folder} has no graph", fix="save the model again")
    wanted = None if tags is None else {tags} if isinstance(tags, str) else set(tags)
    there = [set(m.meta_info_def.tags) for m in saved.meta_graphs]
    fits = [m for m, found in zip(saved.meta_graphs, there, strict=True) if ("serve" in found if wanted is None else found == wanted)]
    if wanted is not None and not fits:
        said = "; ".join(", ".join(sorted(found)) or "none" for found in there)
        raise ArgumentError(f"{folder} has no graph with the tags {', '.join(sorted(wanted))}", fix=f"there are {said}")
    meta = fits[0] if fits else saved.meta_graphs[0]
    prefix = os.path.join(folder, "variables", "variables")
    name = os.path.basename(os.path.abspath(folder))
    made = _of_meta(meta, name, prefix if os.path.isfile(f"{prefix}.index") else None)
    made.home = folder
    assets = os.path.join(folder, "assets")
    older = meta.collection_def["saved_model_assets"].any_list.value  # TensorFlow 1 lists them in a collection alone
    for asset in meta.asset_file_def or [parsed("AssetFileDef", listed.value, "a collection") for listed in older]:
        path = os.path.realpath(os.path.join(assets, asset.filename))
        if os.path.commonpath([path, os.path.realpath(assets)]) != os.path.realpath(assets):
            raise ParseError(f"the asset {asset.filename!r} is outside {assets}", fix="is the file damaged?")
        made.assets[named(asset.tensor_info.name)] = path
    return made


def _of_meta(meta: Any, name: str, checkpoint: str | None) -> ModelFile:
    holes = {f"{n.name}:0": _said_shape(n.attr) for n in meta.graph_def.node if n.op in ("Placeholder", "PlaceholderV2")}
    signatures = {key: _signature(key, said, holes) for key, said in sorted(meta.signature_def.items()) if key not in OWN}
    there = checkpoint is not None and os.path.isfile(f"{checkpoint}.index")
    signatures = signatures or of_graph(meta.graph_def, name).signatures
    made = ModelFile(name, meta.graph_def, signatures, meta, checkpoint if there else None)
    main = [t.name for t in meta.signature_def[OWN[0]].outputs.values()] if OWN[0] in meta.signature_def else []
    kept = next((made.collections[key] for key in MAIN if made.collections.get(key)), [])
    made.initializers = [node for node in map(node_of, map(named, main or kept)) if node in made.graph.nodes]
    return made


def _signature(name: str, said: Any, holes: Mapping[str, Any]) -> Signature:
    """Returns a signature of a file. holes: the shapes of placeholders, whose lengths hold where the signature leaves them open."""

    def port(key: str, info: Any) -> Port:
        if not info.name:
            raise ParseError(f"{key!r} of the signature {name!r} is not a tensor", fix="sparse and ragged tensors are not read")
        shape, known = shape_of(info.tensor_shape), holes.get(named(info.name))
        if known is not None and (shape is None or len(shape) == len(known)):
            shape = known if shape is None else tuple([n if n is not None else k for n, k in zip(shape, known, strict=True)])
        return Port(key, f"tensor({type_name(info.dtype)})", shape, numpy_type(info.dtype), "tensor")

    inputs, outputs = sorted(said.inputs.items()), sorted(said.outputs.items())
    takes, gives = (tuple([port(*item) for item in items]) for items in (inputs, outputs))
    values, results = ({key: named(info.name) for key, info in items} for items in (inputs, outputs))
    return Signature(name, takes, gives, values, results)
