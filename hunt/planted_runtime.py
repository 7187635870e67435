"""Mistakes in what stands around compiled programs: state, arguments, the cache, loops over memory, threads. See `hunt.planted`."""

import functools

import numpy as np

from ngraph.op_graph import fingerprint
from ngraph.ops import state as state_ops
from ngraph.runtime import arguments, state, weights
from ngraph.transformers.executable import frame, layout, table, versions

KIND = "histories"


def instead(owner, name):
    """Puts what the decorated function makes of an attribute in its place: `owner.name = function(owner.name)`."""

    def put(function):
        was = getattr(owner, name)
        setattr(owner, name, functools.update_wrapper(function(was), was) if callable(was) else function(was))

    return put


def packed_weights_stay():
    @instead(state.Lent, "stamp")
    def _(was):
        return lambda self: 0


def writes_of_code_are_not_counted():
    @instead(state.StateArrays, "words")
    def _(was):
        return lambda self, variables: was(self, variables)[:1]


def setting_is_not_counted():
    @instead(state.StateArrays, "wrote")
    def _(was):
        return lambda self, variables: None


def initial_values_are_written():
    @instead(state.StateArrays, "own")
    def _(was):
        return lambda self, variables: None


def given_arrays_are_kept():
    state_ops.immutable = lambda a: a
    state.content_of = lambda a: b""


def get_gives_the_state_itself():
    @instead(state.Device, "get")
    def _(was):
        return lambda self, buffer: buffer


def set_keeps_the_array():
    @instead(state.Device, "put")
    def _(was):
        return lambda self, array: np.require(array, requirements="CA")


def restoring_leaves_the_last():
    @instead(weights, "kept")
    def _(was):
        return lambda own: dict(list(was(own).items())[:-1]) or was(own)


def other_orders_are_taken_as_they_lie():
    class Here:
        def __getattr__(self, name):
            return getattr(np, name)

        @staticmethod
        def require(a, *more, **named):
            return np.ndarray(a.shape, a.dtype, a.tobytes("A"))

    versions.np = Here()


def arguments_are_cut_to_integers():
    @instead(arguments, "converted")
    def _(was):
        return lambda x, dtype, what: np.ceil(was(x, dtype, what) / 2).astype(dtype.np) * 2


def attributes_are_in_no_key():
    @instead(fingerprint._Encoder, "rows")
    def _(was):
        def rows(self, roots):
            for name, inputs, said, type_ in was(self, roots):
                yield name, inputs, [(k, a) for k, a in said if k not in ("kind", "reverse", "reduction_axes")], type_

        return rows


def numbers_are_in_no_key():
    @instead(fingerprint._Encoder, "encode")
    def _(was):
        return lambda self, x: 0.0 if type(x) is float else was(self, x)

    fingerprint.SIMPLE = fingerprint.SIMPLE - {float}


def contents_of_constants_are_in_no_key():
    @instead(fingerprint._Encoder, "array")
    def _(was):
        return lambda self, a, name="": [str(a.dtype), list(a.shape)]


def a_version_serves_other_lengths():
    @instead(versions.VersionedExecutable, "_open")
    def _(was):
        return lambda self, key: self.first


def slices_of_a_loop_go_forward():
    @instead(table._LoopInstructions, "slices")
    def _(was):
        return lambda self, place, size, reverse: was(self, place, size, False)


def the_last_carry_is_left():
    @instead(table._LoopInstructions, "swapped")
    def _(was):
        return lambda self, start, first, second: was(self, start, second, first)


def the_other_branch():
    table.CONTROL["cond"] = functools.partial(_exchanged, table.CONTROL["cond"])


def _exchanged(was, at, scope, r, inner):
    bodies = inner.bodies
    was(at, scope, r, inner._replace(bodies={"then": bodies["else"], "else": bodies["then"]}))


def a_work_item_is_left_where_there_are_threads():
    @instead(table.Table, "shares")
    def _(was):
        def shares(self, scope, s, items, about):
            _, grain, ways, *rest = was(self, scope, s, items, about)
            return [items - (ways > 1), grain, ways, *rest]

        return shares


def the_arena_is_short():
    @instead(layout.Layout, "_inner")
    def _(was):
        def inner(self, step):
            was(self, step)
            self.inner.update({k: i._replace(spare=dict.fromkeys(i.spare, 0)) for k, i in self.inner.items()})

        return inner


def results_are_not_the_callers():
    @instead(frame.ActivationRecord, "_room")
    def _(was):
        held = {}

        def room(self, b):
            made = was(self, b)
            return held.setdefault((self, b, made.shape), made)

        return room


MISTAKES = {
    "packed weights stay when a variable is written": packed_weights_stay,
    "what generated code writes is not counted": writes_of_code_are_not_counted,
    "what Python writes is not counted": setting_is_not_counted,
    "a variable is written where its initial value lies": initial_values_are_written,
    "arrays that others can write are kept": given_arrays_are_kept,
    "get gives the state's own array": get_gives_the_state_itself,
    "set keeps the caller's array": set_keeps_the_array,
    "restoring leaves out the last variable": restoring_leaves_the_last,
    "arguments in other orders are taken as they lie": other_orders_are_taken_as_they_lie,
    "arguments of other dtypes lose a digit": arguments_are_cut_to_integers,
    "attributes are in no key of the cache": attributes_are_in_no_key,
    "numbers are in no key of the cache": numbers_are_in_no_key,
    "contents of constants are in no key of the cache": contents_of_constants_are_in_no_key,
    "a version for some lengths serves others": a_version_serves_other_lengths,
    "slices of a loop that goes backwards go forward": slices_of_a_loop_go_forward,
    "the last carry of a loop is left in its other place": the_last_carry_is_left,
    "a branch takes the other way": the_other_branch,
    "a work item is left out where several threads run": a_work_item_is_left_where_there_are_threads,
    "the second places of carries are one": the_arena_is_short,
    "two calls give one array": results_are_not_the_callers,
}
