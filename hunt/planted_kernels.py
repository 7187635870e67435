"""Mistakes in the plan and in code generation, each of which `kernels` has to find."""

from hunt.planting import edited

CODE, PLAN, SCHEDULE, TENSORS = "ngraph.codegen", "ngraph.plan", "ngraph.schedule", "ngraph.tensors"

MISTAKES = {
    "wide loads are shared whatever their masks": edited(
        f"{CODE}.access:_strided",
        "parts.append(memo(s.known, load, w, place, a.dtype, n, mask))",
        "x = s.known.setdefault(('wide', place, min(end, n)), None) or w.load(place, a.dtype, n, mask=mask);"
        " s.known['wide', place, min(end, n)] = x; parts.append(x)",
    ),
    "the mask of the neighbour: one lane too many": edited(f"{CODE}.lanes:leading", "str(k < count)", "str(k <= count)"),
    "the last vector is not masked": edited(f"{CODE}.scope:Scope.mask", "return leading", "return None and leading"),
    "a mask of a computed length is one lane short": edited(f"{CODE}.text:IRWriter.tail", "icmp sgt", "icmp sge"),
    "an index at 0 counts as outside": edited(f"{CODE}.scope:Scope.holds", "icmp sge", "icmp sgt"),
    "only the last predicate counts": edited(f"{CODE}.scope:Scope.holds", "one = meet_all(self.w, one, found)", "one = found"),
    "what is outside is 0 whatever the pad value": edited(f"{CODE}.access:_filled", "if holds is None or a.zero:", "if True:"),
    "a mirrored vector ends one element early": edited(f"{CODE}.access:_reversed", "1 - n)", "-n)"),
    "a mirrored vector is not turned about": edited(f"{CODE}.access:_reversed", "each), w.shuffle(x, range(n)[::-1])", "each), x"),
    "transposed rows are one element too far": edited(
        f"{CODE}.lanes:transposed_rows", "times(w, lane, step)", "plus(w, times(w, lane, step), 1)"
    ),
    "a strided vector picks from one element before": edited(f"{CODE}.access:_strided", "picks = [phase + lane * k", "picks = [lane * k"),
    "lanes beyond the end are summed": edited(f"{CODE}.nest:Nest._fold", "if mask is not None:", "if False:"),
    "the halves of a sum meet themselves": edited(f"{CODE}.lanes:as_one", "w.shuffle(x, range(n, 2 * n))", "w.shuffle(x, range(n))"),
    "a maximum of negative numbers begins at 0": edited(f"{CODE}.lanes:identity", '"max": dtype.lowest', '"max": 0'),
    "the first step of a loop is not unrolled": edited(
        f"{CODE}.nest:Nest._together", "constant(n // unroll, dtypes.int64)", "constant(0, dtypes.int64)"
    ),
    "known values outlast their loop": edited(
        f"{CODE}.scope:ScopedTable.scope", "for key, old in reversed(self.undo.pop()):", "for key, old in []:"
    ),
    "interleaved stores are in the wrong order": edited(
        f"{CODE}.access:store_interleaved",
        "interleaved(w, [w.splat(x, n) for x in values], q)",
        "interleaved(w, [w.splat(x, n) for x in values[::-1]], q)",
    ),
    "a running value forgets what is before its vector": edited(f"{CODE}.routines:_Along.run", "value = self.both(carry, value)", "pass"),
    "the least value of an index is never negative": edited(
        f"{TENSORS}.index:bounds", "low, high = low + min(0, far), high + max(0, far)", "low, high = low, high + max(0, far)"
    ),
    "elements between dilated ones count as nothing": edited(
        f"{TENSORS}.strided_reductions:_adds_nothing", "if len(cone) == 1:", "if True:\n        return True\n    if len(cone) == 1:"
    ),
    "what an index reads is not predicated in classes": edited(f"{TENSORS}.strided_reductions:_inside", "if type(e) is int:", "if True:"),
    "state is replaced where other places of it are still to be read": edited(
        f"{PLAN}.memory:may_replace", "(k > at or read.predicate or not _own(read.index))", "(k > at or read.predicate)"
    ),
    "a sum by fours forgets what was taken from the bytes": edited(
        f"{TENSORS}.int8_dot:_corrected", 'result = made("add", result, made("multiply", c, whole_sum(s)))', "pass"
    ),
    "a predicate of one read is dropped for another of the same value": edited(
        f"{TENSORS}.strided_reductions:_moved_with",
        "made[a.source] if a in taken",
        "made[a.source] if type(a) is Read and a.source in made",
    ),
    "multiples of a divisor lose their rest": edited(f"{TENSORS}.strided_reductions:exact", "form[1] // b)", "0)"),
    "an exclusive running value begins anew with each vector": edited(
        f"{CODE}.routines:_Along.run", "self.shifted(carry, value, 1)", "self.shifted(self.first(lanes), value, 1)"
    ),
    "a running value lacks its last doubling": edited(f"{CODE}.routines:_Along.run", "while s < lanes:", "while 2 * s < lanes:"),
    "a running value backwards is one place too far": edited(f"{CODE}.routines:_Running.back", '"-", n, units)', '"-", n, units - 1)'),
    "the rows of a tile are its first": edited(f"{CODE}.nest:Nest._key", "i if self.row in deps else 0", "0"),
    "what is combined with a place takes it": edited(f"{CODE}.access:store", 'if how != "set":', "if False:"),
    "offsets of joined loops step evenly": edited(
        f"{CODE}.nest:Nest._together", "if any(x != k * step for k, x in enumerate(far)):", "if False:"
    ),
    "an index that may be negative is divided as one that is not": edited(
        f"{CODE}.scope:Scope._small", "low >= 0 and high < INT32_END", "high < INT32_END"
    ),
    "a quotient of negative indices is cut": edited(
        f"{CODE}.math:_by_whole", "quotient - cast(rest.differs(0) & ((rest ^ y) < 0), dtype)", "quotient"
    ),
    "a digit of an index forgets where that begins": edited(
        f"{SCHEDULE}.linear:_digit", "not in fixed}, f.const % k)", "not in fixed}, 0)"
    ),
    "a NaN in the first operand of a maximum is lost": edited(f"{CODE}.math:_extreme", "x.is_nan().select(x, taken)", "taken"),
    "floats that no integer holds become 0": edited(f"{CODE}.math:_whole", "(low >= top).select(dtype.highest, whole)", "whole"),
    "the sign of bfloat16 is lost": edited(f"{CODE}.math:widen", "<< 16).floating()\n    if", "<< 17 >> 1).floating()\n    if"),
    "a border begins one element early": edited(f"{PLAN}.padding:Padding.edges", "(high, n))", "(high, n - 1))"),
    "a border that is asked for twice is the last one": edited(
        f"{PLAN}.padding:Padding.wish", "(max(old[0], low), max(old[1], high))", "(low, high)"
    ),
    "a predicate stays where it was when its read is moved": edited(
        f"{TENSORS}.index:Read.at", "tuple([substitute_index(g, index) for g in self.predicate])", "self.predicate"
    ),
    "the predicate of a value is in no key of a stage": edited(
        f"{PLAN}.stages:_Lines.node_at", 'predicate if n.kind == "elem" else ()', "()"
    ),
    "a stage runs once for all work items": edited(f"{PLAN}.stages:_Stages.kernel", "depth=depth)", "depth=0)"),
    "parts of a sum take one place": edited(f"{PLAN}.stages:_Stages.part_of", "(Idx(a) if b == 1 else Idx(a) // b)", "0"),
    "the classes of a remainder are all as long as the first": edited(
        f"{TENSORS}.strided_reductions:_class", "own < (graph.known(o) or 0)", "False"
    ),
}
