"""The op `NgraphEncapsulate` and its kernel, registered with TensorFlow's C API through ctypes.

TensorFlow's wheel exports its C functions for ops and kernels, so that no C++ compiler is needed. The kernel runs on the CPU and on
TensorFlow's own buffers: what it computes reads inputs where they lie, and writes into tensors that TensorFlow has allocated. TensorFlow
calls it from threads of its own; ctypes takes Python's lock for each call.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ngraph.bridge.tensors import NAMES, RANK, RECORD, TensorCode
from ngraph.errors import UnsupportedError
from ngraph.frontends.tensorflow.dtypes import number_of, numpy_type

OP = "NgraphEncapsulate"
ATTRIBUTES = ("Targuments: list(type) >= 0", "Tresults: list(type) >= 0", "ngraph_cluster: int", "ngraph_backend: string = 'CPU'")
VERSIONS = ("2.20", "2.21")  # of TensorFlow, on which the bridge is tested

Compute = Callable[["KernelCall"], None]

_INTERNAL = 13  # TF_INTERNAL of tsl/c/tsl_status.h
_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_COMPUTE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_SHAPES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

_P, _I, _L, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_char_p
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {  # of C functions: what each returns, and what it takes
    "TF_NewStatus": (_P, ()),
    "TF_DeleteStatus": (None, (_P,)),
    "TF_GetCode": (_I, (_P,)),
    "TF_Message": (_S, (_P,)),
    "TF_SetStatus": (None, (_P, _I, _S)),
    "TF_NewOpDefinitionBuilder": (_P, (_S,)),
    "TF_OpDefinitionBuilderAddAttr": (None, (_P, _S)),
    "TF_OpDefinitionBuilderAddInput": (None, (_P, _S)),
    "TF_OpDefinitionBuilderAddOutput": (None, (_P, _S)),
    "TF_OpDefinitionBuilderSetShapeInferenceFunction": (None, (_P, _SHAPES)),
    "TF_RegisterOpDefinition": (None, (_P, _P)),
    "TF_ShapeInferenceContextSetUnknownShape": (None, (_P, _P)),
    "TF_NewKernelBuilder": (_P, (_S, _S, _CREATE, _COMPUTE, _DELETE)),
    "TF_RegisterKernelBuilder": (None, (_S, _P, _P)),
    "TF_OpKernelConstruction_GetAttrInt64": (None, (_P, _S, _P, _P)),
    "TF_OpKernelConstruction_Failure": (None, (_P, _P)),
    "TF_GetInput": (None, (_P, _I, _P, _P)),
    "TF_OpKernelContext_Failure": (None, (_P, _P)),
    "TF_NumInputs": (_I, (_P,)),
    "TF_AllocateOutput": (_P, (_P, _I, _I, _P, _I, ctypes.c_size_t, _P)),
    "TF_TensorType": (_I, (_P,)),
    "TF_NumDims": (_I, (_P,)),
    "TF_Dim": (_L, (_P, _I)),
    "TF_TensorData": (_P, (_P,)),
    "TF_DeleteTensor": (None, (_P,)),
}


class CApi:
    """TensorFlow's C functions by name, such as `api.TF_NewStatus()`. Raises UnsupportedError where TensorFlow lacks one."""

    def __init__(self) -> None:
        folder = os.path.dirname(tf.__file__)
        names = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2", "libtensorflow_framework.2.dylib", "libtensorflow_cc.2.dylib")
        found = [ctypes.CDLL(path) for name in names if os.path.exists(path := os.path.join(folder, name))]
        for name, (gives, takes) in _SIGNATURES.items():
            function = next((f for f in (getattr(library, name, None) for library in found) if f is not None), None)
            if function is None:
                raise UnsupportedError(
                    f"TensorFlow {tf.__version__} does not export {name}", fix=f"the bridge runs with {' and '.join(VERSIONS)}"
                )
            function.restype, function.argtypes = gives, takes
            setattr(self, name, function)
        self.code = TensorCode({name: getattr(self, name) for name in NAMES})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def good(self, status: int) -> None:
        """Raises UnsupportedError with TensorFlow's message where a call has failed."""
        if self.TF_GetCode(status):
            raise UnsupportedError(f"TensorFlow: {self.TF_Message(status).decode('utf-8', 'replace')}", fix="see the message")


@cache
def api() -> CApi:
    """Returns TensorFlow's C functions."""
    return CApi()


class TensorView(NamedTuple):
    """A tensor, as far as it is known: shape, dtype, and the kind of its memory, None for one without bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Any

    def array(self, address: int | None) -> np.ndarray[Any, Any]:
        """Returns the array of such a tensor that starts at an address."""
        if self.memory is None or address is None:
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, self.memory.from_address(address))


class Targets:
    """Outputs of a call that are allocated at once: for each its place among the outputs, shape and dtype."""

    def __init__(self, gives: Sequence[tuple[int, Sequence[int], np.dtype[Any]]]):
        self.gives = [(k, tuple(shape), dtype) for k, shape, dtype in gives]
        self.count = len(self.gives)
        self.shapes = [_known(shape, dtype) for _, shape, dtype in self.gives]
        numbers = list[int]()
        for _, shape, dtype in self.gives:
            if len(shape) > RANK:
                raise UnsupportedError(f"a result has {len(shape)} dims, and the bridge takes {RANK}", fix="TensorFlow runs it")
            numbers += [_number(dtype), len(shape), math.prod(shape) * dtype.itemsize, *shape, *[0] * (RANK - len(shape))]
        self.places = (ctypes.c_int * self.count)(*[k for k, _, _ in self.gives])
        self.records = (ctypes.c_int64 * len(numbers))(*numbers)


class KernelCall:
    """One call of the kernel: inputs as arrays that share TensorFlow's memory, outputs that TensorFlow allocates.

    key  of the inputs' dtypes and shapes, once `inputs` has been called
    """

    __slots__ = ("_c", "_context", "_held", "_outputs", "_status", "cluster", "key")

    def __init__(self, c: CApi, context: int, cluster: int):
        self._c, self._context, self.cluster = c, context, cluster
        self._status: int = c.TF_NewStatus()
        self._held: list[tuple[Any, int]] = []
        self._outputs: dict[int, np.ndarray[Any, Any]] = {}
        self.key = b""

    def inputs(self) -> list[np.ndarray[Any, Any]]:
        """Returns the inputs; they are valid until the call ends."""
        n = self._c.TF_NumInputs(self._context)
        tensors, data, records = (ctypes.c_void_p * n)(), (ctypes.c_void_p * n)(), (ctypes.c_int64 * (n * RECORD))()
        done = self._c.code.inputs(self._context, self._status, n, tensors, data, records)
        self._held.append((tensors, done if done == n or self._c.TF_GetCode(self._status) else done + 1))
        self._c.good(self._status)
        if done < n:
            raise UnsupportedError(f"an argument has more than {RANK} dims", fix="TensorFlow runs it")
        self.key = bytes(records)
        return [shape.array(address) for shape, address in zip(_shapes_of(self.key), data, strict=True)]

    def outputs(self, targets: Targets) -> list[np.ndarray[Any, Any]]:
        """Returns the memory of outputs that TensorFlow allocates."""
        n = targets.count
        tensors, data = (ctypes.c_void_p * n)(), (ctypes.c_void_p * n)()
        done = self._c.code.outputs(self._context, self._status, n, targets.places, targets.records, tensors, data)
        self._held.append((tensors, done))
        self._c.good(self._status)
        found = [shape.array(address) for shape, address in zip(targets.shapes, data, strict=True)]
        self._outputs.update(zip(targets.places, found, strict=True))
        return found

    def put(self, k: int, array: np.ndarray[Any, Any]) -> None:
        """Copies an array into an output, which TensorFlow allocates where that has not been done for this shape."""
        there = self._outputs.get(k)
        if there is None or there.shape != array.shape or there.dtype != array.dtype:
            (there,) = self.outputs(Targets([(k, array.shape, array.dtype)]))
        there[...] = array

    def fail(self, message: str) -> None:
        """Makes the call an error of TensorFlow's."""
        self._c.TF_SetStatus(self._status, _INTERNAL, message.encode())
        self._c.TF_OpKernelContext_Failure(self._context, self._status)

    def end(self) -> None:
        """Gives back what the call holds of TensorFlow's."""
        for tensors, n in self._held:
            self._c.code.release(tensors, n)
        self._c.TF_DeleteStatus(self._status)


@lru_cache(maxsize=4096)
def _shapes_of(key: bytes) -> list[TensorView]:
    """Returns what the records of inputs say."""
    numbers = np.frombuffer(key, np.int64).reshape(-1, RECORD).tolist()
    return [_known(tuple(r[3 : 3 + r[1]]), _dtype(r[0])) for r in numbers]


def _known(shape: tuple[int, ...], dtype: np.dtype[Any]) -> TensorView:
    size = math.prod(shape) * dtype.itemsize
    return TensorView(shape, dtype, ctypes.c_char * size if size else None)


@cache
def _dtype(number: int) -> np.dtype[Any]:
    found = numpy_type(number)
    assert found is not None
    return found


@cache
def _number(dtype: np.dtype[Any]) -> int:
    return number_of(dtype)


_kept: list[Any] = []  # callbacks, which TensorFlow calls as long as the process runs
_lock = threading.Lock()


def register(compute: Compute) -> None:
    """Registers op and kernel, once in a process. `compute` is called with each call of the kernel; what it raises becomes its error.

    Raises UnsupportedError for other versions of TensorFlow than those that the bridge is tested on.
    """
    with _lock:
        if _kept:
            return
        if not tf.__version__.startswith(tuple(f"{v}." for v in VERSIONS)):
            raise UnsupportedError(
                f"the bridge is made for TensorFlow {' and '.join(VERSIONS)}, and this is {tf.__version__}",
                fix=f"pip install tensorflow-cpu=={VERSIONS[-1]}.0",
            )
        c = api()
        _kept.extend((_SHAPES(_unknown_shapes), _CREATE(_created), _DELETE(_deleted), _COMPUTE(_computer(compute))))
        shapes, created, deleted, computed = _kept
        status = c.TF_NewStatus()
        builder = c.TF_NewOpDefinitionBuilder(OP.encode())
        for attribute in ATTRIBUTES:
            c.TF_OpDefinitionBuilderAddAttr(builder, attribute.encode())
        c.TF_OpDefinitionBuilderAddInput(builder, b"arguments: Targuments")
        c.TF_OpDefinitionBuilderAddOutput(builder, b"results: Tresults")
        c.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shapes)
        c.TF_RegisterOpDefinition(builder, status)
        c.good(status)
        kernel = c.TF_NewKernelBuilder(OP.encode(), b"CPU", created, computed, deleted)
        c.TF_RegisterKernelBuilder(OP.encode(), kernel, status)
        c.good(status)
        c.TF_DeleteStatus(status)


def _unknown_shapes(context: int, status: int) -> None:
    """The C API reads no lists of shapes from attributes: `encapsulate` sets shapes where it creates the op."""
    api().TF_ShapeInferenceContextSetUnknownShape(context, status)


def _created(construction: int) -> int:
    """Returns what stands for a kernel: its cluster's number, from 1 on."""
    c, number = api(), ctypes.c_int64()
    status = c.TF_NewStatus()
    c.TF_OpKernelConstruction_GetAttrInt64(construction, b"ngraph_cluster", ctypes.byref(number), status)
    if c.TF_GetCode(status):
        c.TF_OpKernelConstruction_Failure(construction, status)
    c.TF_DeleteStatus(status)
    return number.value


def _deleted(cluster: int) -> None:
    """There is nothing to free."""


def _computer(compute: Compute) -> Callable[[int, int], None]:
    c = api()

    def run(cluster: int, context: int) -> None:
        call = KernelCall(c, context, cluster)
        try:
            compute(call)
        except BaseException as error:
            call.fail(f"{type(error).__name__}: {error}")
        finally:
            call.end()

    return run
