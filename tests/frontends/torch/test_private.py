"""The names that PyTorch keeps to itself are there, and mean what this frontend takes them for."""

import ctypes
import gc
import math
import threading
import warnings
from inspect import signature

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions

from ngraph.frontends.torch import adafactor, backend, losses, private, report, reset


def test_this_is_the_version_that_is_tested():
    assert private.same_version()


def test_the_table_of_decompositions_leaves_whole_what_is_ours():
    names = {str(op).rpartition(".")[0] for op in private.decompositions(lambda op: op == "aten.elu.default")}
    assert "aten.gelu_backward" in names and "aten.layer_norm" in names and "aten.narrow_copy" in names
    assert not names & {*private.WHOLE, "aten.elu", "aten.uniform", "aten.add_"}


def test_a_rule_can_be_made_to_lay_its_results_as_the_op_does():
    """If PyTorch's own rule does so, and those of all other ops, `laid` can go."""
    op = torch.ops.aten.baddbmm.default
    a, b, c = (torch.randn(shape).mT for shape in ((2, 6, 4), (2, 3, 4), (2, 6, 3)))
    plain, laid = [rule(a, b, c) for rule in (private.rule_of(op), private.laid(op, private.rule_of(op)))]
    assert plain.stride() != laid.stride() == op(a, b, c).stride()
    assert torch.equal(plain, laid)


def test_attention_of_whole_scores_is_what_its_op_computes():
    q, k, v = (torch.randn(1, 2, 5, 4) for _ in range(3))
    every = (lambda b, h, i, j: i >= j,)
    given = q, k, v, lambda score, b, h, i, j: score * 2, every, 0.5, {}
    for found, wanted in zip(private.whole_scores(*given), private.flex_attention(*given), strict=True):
        assert torch.equal(found, wanted)


def test_rules_of_means_divide_by_the_number_of_elements():
    """If they no longer do, `losses.slopes` can go."""
    one, none = torch.ones(()), torch.zeros(0)
    for name in losses.MEANS:
        with pytest.raises(ZeroDivisionError):
            private.rule_of(getattr(torch.ops.aten, f"{name}_loss_backward").default)(one, none, none, 1, *[1.0] * (name != "mse"))


def test_every_op_over_lists_that_writes_none_is_taken_apart():
    found = {str(op) for op in private.foreach_ops()}
    assert {"aten._foreach_norm.Scalar", "aten._foreach_mul.Tensor", "aten._foreach_sqrt.default"} <= found
    assert not [op for op in found if op.partition(".")[2].partition(".")[0].endswith("_")]
    assert found <= {str(op) for op in private.decompositions(lambda op: False)}


def test_dynamo_says_why_a_graph_ends():
    torch._dynamo.reset()
    reset()

    def f(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    torch.compile(f, backend=backend)(torch.ones(3))
    first, second = [function.about for function in report().functions]
    assert first.broken and "graph_break" in first.reason and first.where.startswith(__file__)
    assert not second.broken


def test_compilations_are_measured():
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    last = private.metrics()[-1]
    assert last.compile_id and last.co_filename == __file__ and hasattr(last, "recompile_reason")


def test_ranges_of_expressions_are_taken_out_of_loaded_programs(tmp_path):
    """PyTorch takes a loaded program with `2 * Dim` apart only then."""

    class Twice(torch.nn.Module):
        def forward(self, x):
            return x * 2

    dim = torch.export.Dim("n", min=2, max=9)
    program = torch.export.export(Twice(), (torch.ones(6),), dynamic_shapes={"x": {0: 2 * dim}})
    torch.export.save(program, tmp_path / "m.pt2")
    loaded = torch.export.load(tmp_path / "m.pt2")
    with pytest.raises(AssertionError):
        loaded.run_decompositions({})
    private.keep_symbols(loaded)
    loaded.run_decompositions({})


def test_a_symint_has_a_value_in_this_call():
    seen = []

    def look(gm, inputs):
        seen.extend(private.hint_of(x) for x in inputs if isinstance(x, torch.SymInt))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x * x.shape[0], backend=look, dynamic=True)(torch.ones(7))
    assert seen == [7]


def test_the_expression_of_a_length_is_python():
    s = sympy.Symbol("s0", integer=True, positive=True)
    e = functions.TruncToInt(sympy.Float(0.7) * functions.ToFloat(s + 1)) + functions.BitwiseFn_bitwise_and(s, 3)
    for n in (9, 89, 90):
        assert eval(private.python_of(e), {"math": math, "torch": torch, "n_s0": n}) == int(0.7 * float(n + 1)) + (n & 3)


def test_dynamo_takes_recurrent_layers_for_us_alone():
    """`ConvertFrameAssert` knows the backend it compiles for, wrapped, and reads `allow_rnn`."""
    torch._dynamo.reset()
    reset()
    assert not torch._dynamo.config.allow_rnn
    torch.compile(torch.nn.GRU(2, 3), backend=backend, fullgraph=True, options={"fallback": "error"})(torch.ones(4, 2))
    assert len(report().functions) == 1 and not torch._dynamo.config.allow_rnn


def test_dynamo_traces_stand_ins_for_us_alone():
    """The table of rules holds those of functions that Dynamo skips, and `_torchdynamo_inline` is traced in place of a `forward`."""
    from torch._dynamo.trace_rules import get_torch_obj_rule_map
    from torch._dynamo.variables import SkipFunctionVariable
    from torch.nn.utils import rnn

    seen = []

    def look(gm, inputs):
        seen.append([rule for function, rule in get_torch_obj_rule_map().items() if function is rnn.pack_padded_sequence])
        return backend(gm, inputs)

    torch._dynamo.reset()
    torch.compile(lambda x: rnn.pack_padded_sequence(x, torch.tensor([2])).data, backend=look)(torch.ones(2, 1, 3))
    assert get_torch_obj_rule_map()[rnn.pack_padded_sequence] is SkipFunctionVariable and not private.taking()
    assert torch.nn.LSTM.forward._torchdynamo_inline is not torch.nn.LSTM.forward


def test_an_optimizers_state_is_made_as_its_first_step_makes_it():
    for kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.NAdam, torch.optim.Adafactor, torch.optim.Adagrad):
        p, q = torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(3, 2))
        made, wanted = kind([p], 0.1), kind([q], 0.1)
        private.initialise(made, [p])
        q.grad = torch.zeros(3, 2)
        wanted.step()
        assert p.grad is None and made.state[p].keys() >= wanted.state[q].keys()
        assert {name: t.shape for name, t in made.state[p].items()} == {name: t.shape for name, t in wanted.state[q].items()}


def test_the_steps_of_adafactor_have_the_arguments_of_ours():
    for steps in private.ADAFACTOR_STEPS:
        assert list(signature(steps).parameters) == list(signature(adafactor.step).parameters)
        assert steps._torchdynamo_inline is adafactor.step


def test_a_scheduler_takes_it_that_a_step_was_made():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    private.stepped(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


def test_a_written_tensor_has_another_version():
    x = torch.ones(3)
    before = x._version
    private.written((x,))
    assert x._version > before


def test_the_partitioner_may_draw_again():
    from torch._functorch import partitioners

    assert torch.ops.ngraph.draw in partitioners.get_default_op_list().recomputable_ops


def test_aot_autograd_keeps_our_graphs_whole_and_no_others():
    from torch._functorch._aot_autograd import graph_compile
    from torch._functorch._aot_autograd.autograd_cache import FXGraphCacheMiss

    ours = private.KeptCode(lambda inputs: inputs)
    assert graph_compile._should_save_cache(ours) and not graph_compile._should_save_cache(lambda inputs: inputs)
    assert private.Missed is FXGraphCacheMiss and not torch._functorch.config.bundled_autograd_cache


def test_a_modules_attribute_is_part_of_the_key():
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCachePickler

    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    found = []
    for text in ("a", "b", "a"):
        private.part_of_key(gm, text)
        found.append(AOTAutogradCachePickler(gm).get_hash(gm))
    assert found[0] == found[2] != found[1]


def test_a_key_has_no_part_of_inductors(monkeypatch):
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails
    from torch._inductor.codecache import FxGraphHashDetails

    whole = []
    monkeypatch.setattr(FxGraphHashDetails, "__init__", lambda self, *a: whole.append(1))
    monkeypatch.setattr(AOTAutogradCacheDetails, "_record_runtime_state", lambda self, gm: None)
    made = [torch.fx.symbolic_trace(lambda x: x + 1) for _ in range(2)]
    private.part_of_key(made[1], "a")
    with torch._guards.tracing(torch._guards.TracingContext(torch._subclasses.FakeTensorMode(shape_env=ShapeEnv()))):
        details = [AOTAutogradCacheDetails(gm, [torch.ones(2)], None, {}) for gm in made]
    assert len(whole) == 1 and not hasattr(details[0], "torch_version")
    assert details[1].torch_version[0] == torch.__version__ and details[1].gm is made[1] and len(details[1].example_inputs) == 1


def test_old_objects_are_not_visited_while_a_frame_is_traced():
    seen = []

    def look(gm, inputs):
        seen.append(gc.get_freeze_count())
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=look)(torch.ones(2))
    with private.settled():
        seen.append(gc.get_freeze_count() > 1000)
        with private.settled():  # what is frozen stays so
            pass
        seen.append(gc.get_freeze_count() > 1000)
    assert seen == [0, True, True] and gc.get_freeze_count() == 0


def test_rules_are_made_when_one_is_looked_up():
    made = []
    rules = private.RulesOnDemand(lambda: made.append(1) or {"aten.add": len})
    assert not made and {**rules} == {"aten.add": len} and "aten.mul" not in rules and len(made) == 1


def test_lengths_that_values_decide_have_no_answers():
    seen = []

    def look(gm, inputs):
        values = [n.meta.get("example_value") for n in gm.graph.nodes]
        (n,) = [v for v in values if isinstance(v, torch.SymInt) and private.unbacked(v)]
        seen.extend([private.answer(n == 5, True), private.answer(n < 5, False), private.answer(n < -1, False), private.hint_of(n) > 0])
        return gm.forward

    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch.compile(lambda x: torch.zeros(x.sum().item()), backend=look, fullgraph=True)(torch.ones(7, dtype=torch.int64))
    assert seen == [False, None, False, True]


def test_calls_are_not_merged_that_decide_lengths():
    from torch._functorch.compile_utils import fx_graph_cse

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output([graph.call_function(torch.ops.aten.nonzero.default, (x,)) for _ in range(2)])
    assert sum(n.op == "call_function" for n in fx_graph_cse(graph).nodes) == 2


def test_a_profiler_is_seen_by_a_flag_and_by_thread():
    assert private.profilers._is_profiler_enabled is False and not private.profiled()
    with torch.profiler.profile():
        assert private.profilers._is_profiler_enabled is True and private.profiled()
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(private.profiled()))
        thread.start()
        thread.join()
        assert elsewhere == [False]
    assert private.profilers._is_profiler_enabled is False and not private.profiled()


def test_a_recorded_block_is_an_event():
    with torch.profiler.profile() as profiler, private.Recorded("a block of ours"):
        torch.ones(3).sum()
    (event,) = [e for e in profiler.events() if e.name == "a block of ours"]
    assert "aten::sum" in [e.name for e in event.cpu_children]


def test_a_tensor_says_in_which_order_its_dims_lie():
    x = torch.zeros(2, 3, 4, 5)
    assert private.suggest_memory_format(x) is torch.contiguous_format
    assert private.suggest_memory_format(x.to(memory_format=torch.channels_last)) is torch.channels_last


def test_the_library_of_pytorchs_threads_runs_a_function_on_each():
    parallel, number = private.openmp()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(parallel)
    mine, seen = ctypes.CFUNCTYPE(ctypes.c_int)(number), []
    member = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.append((mine(), threading.get_ident())))
    run(ctypes.cast(member, ctypes.c_void_p), None, 2, 0)
    assert sorted(n for n, _ in seen) == [0, 1] and (0, threading.get_ident()) in seen
