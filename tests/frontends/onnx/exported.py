"""What is exported, checked and run elsewhere: by ONNX Runtime, or by onnx's reference evaluator where that has no kernel."""

import warnings

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import ngraph as ng
from ngraph.frontends.onnx.export import build

onnxruntime.set_default_logger_severity(4)
HIGHEST = 24  # the opset up to which ONNX Runtime is asked


def exported(what, opset=None, path="made.onnx", **options):
    """The model that `ng.onnx.save` writes, after onnx's checker and strict shape inference found nothing."""
    made, beside = build(what, path, opset, **options)
    assert not beside.arrays
    onnx.checker.check_model(made, full_check=True)
    onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True, data_prop=True)
    return made


def session(made):
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])


def run(made, feeds):
    """The outputs, and who gave them."""
    narrow = any(np.asarray(a).dtype.kind not in "fiub" for a in feeds.values())
    try:
        if made.opset_import[0].version <= HIGHEST and not narrow:
            return session(made).run(None, feeds), "ONNX Runtime"
    except Exception as error:  # its classes are not public
        if "NOT_IMPLEMENTED" not in str(error) and "No corresponding Numpy type" not in str(error):
            raise
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(a) for a in ReferenceEvaluator(made).run(None, feeds)], "onnx"


def computed(ops, holes, arrays):
    """What this library gives."""
    with ng.transformers.make_transformer() as transformer:
        return transformer.computation(list(ops), *holes)(*arrays)


def kinds(made):
    """How often each op stands in a model, the graphs within it among them."""
    found = {}
    todo = [made.graph]
    while todo:
        for node in todo.pop().node:
            found[node.op_type] = found.get(node.op_type, 0) + 1
            todo += [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return found
