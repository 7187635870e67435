"""TensorFlow's tensors of one call, all at once: three functions in machine code around TensorFlow's own, so that Python makes three calls.

Each call through ctypes takes about half a microsecond, and a tensor needs six: a train step with fifty would pay more than its products.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from ngraph.runtime.host.jit import compile_object
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.targets import host

RANK = 8  # dims of a tensor, at most: those of the importer's ops have fewer; a call with more fails, and TensorFlow runs the cluster
RECORD = RANK + 3  # numbers that describe a tensor: inputs have dtype, rank, 0, lengths; outputs have dtype, rank, bytes, lengths
NAMES = ("TF_GetInput", "TF_GetCode", "TF_TensorData", "TF_NumDims", "TF_Dim", "TF_TensorType", "TF_AllocateOutput", "TF_DeleteTensor")

_CODE = f"""
declare void @TF_GetInput(ptr, i32, ptr, ptr)
declare i32 @TF_GetCode(ptr)
declare ptr @TF_TensorData(ptr)
declare i32 @TF_NumDims(ptr)
declare i64 @TF_Dim(ptr, i32)
declare i32 @TF_TensorType(ptr)
declare ptr @TF_AllocateOutput(ptr, i32, i32, ptr, i32, i64, ptr)
declare void @TF_DeleteTensor(ptr)

define i32 @inputs(ptr %context, ptr %status, i32 %n, ptr %tensors, ptr %data, ptr %records) {{
start:
  br label %next
next:
  %k = phi i32 [0, %start], [%k1, %after]
  %more = icmp slt i32 %k, %n
  br i1 %more, label %one, label %end
one:
  %k64 = zext i32 %k to i64
  %slot = getelementptr ptr, ptr %tensors, i64 %k64
  call void @TF_GetInput(ptr %context, i32 %k, ptr %slot, ptr %status)
  %code = call i32 @TF_GetCode(ptr %status)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %fetch, label %end
fetch:
  %t = load ptr, ptr %slot
  %p = call ptr @TF_TensorData(ptr %t)
  %place = getelementptr ptr, ptr %data, i64 %k64
  store ptr %p, ptr %place
  %at = mul i64 %k64, {RECORD}
  %record = getelementptr i64, ptr %records, i64 %at
  %type = call i32 @TF_TensorType(ptr %t)
  %type64 = zext i32 %type to i64
  store i64 %type64, ptr %record
  %rank = call i32 @TF_NumDims(ptr %t)
  %rank64 = zext i32 %rank to i64
  %second = getelementptr i64, ptr %record, i64 1
  store i64 %rank64, ptr %second
  %fits = icmp ule i32 %rank, {RANK}
  br i1 %fits, label %dims, label %end
dims:
  %d = phi i32 [0, %fetch], [%d1, %dim]
  %inside = icmp slt i32 %d, %rank
  br i1 %inside, label %dim, label %after
dim:
  %length = call i64 @TF_Dim(ptr %t, i32 %d)
  %d64 = zext i32 %d to i64
  %where = add i64 %d64, 3
  %home = getelementptr i64, ptr %record, i64 %where
  store i64 %length, ptr %home
  %d1 = add i32 %d, 1
  br label %dims
after:
  %k1 = add i32 %k, 1
  br label %next
end:
  ret i32 %k
}}

define i32 @outputs(ptr %context, ptr %status, i32 %n, ptr %places, ptr %records, ptr %tensors, ptr %data) {{
start:
  br label %next
next:
  %k = phi i32 [0, %start], [%k1, %fetch]
  %more = icmp slt i32 %k, %n
  br i1 %more, label %one, label %end
one:
  %k64 = zext i32 %k to i64
  %at = mul i64 %k64, {RECORD}
  %record = getelementptr i64, ptr %records, i64 %at
  %type64 = load i64, ptr %record
  %type = trunc i64 %type64 to i32
  %second = getelementptr i64, ptr %record, i64 1
  %rank64 = load i64, ptr %second
  %rank = trunc i64 %rank64 to i32
  %third = getelementptr i64, ptr %record, i64 2
  %bytes = load i64, ptr %third
  %dims = getelementptr i64, ptr %record, i64 3
  %which = getelementptr i32, ptr %places, i64 %k64
  %place = load i32, ptr %which
  %t = call ptr @TF_AllocateOutput(ptr %context, i32 %place, i32 %type, ptr %dims, i32 %rank, i64 %bytes, ptr %status)
  %code = call i32 @TF_GetCode(ptr %status)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %fetch, label %end
fetch:
  %slot = getelementptr ptr, ptr %tensors, i64 %k64
  store ptr %t, ptr %slot
  %p = call ptr @TF_TensorData(ptr %t)
  %home = getelementptr ptr, ptr %data, i64 %k64
  store ptr %p, ptr %home
  %k1 = add i32 %k, 1
  br label %next
end:
  ret i32 %k
}}

define void @release(ptr %tensors, i32 %n) {{
start:
  br label %next
next:
  %k = phi i32 [0, %start], [%k1, %one]
  %more = icmp slt i32 %k, %n
  br i1 %more, label %one, label %end
one:
  %k64 = zext i32 %k to i64
  %slot = getelementptr ptr, ptr %tensors, i64 %k64
  %t = load ptr, ptr %slot
  call void @TF_DeleteTensor(ptr %t)
  %k1 = add i32 %k, 1
  br label %next
end:
  ret void
}}
"""


class TensorCode:
    """The three functions, called with Python's lock held: `inputs`, `outputs`, both return how many they did, and `release`."""

    def __init__(self, functions: Mapping[str, Any]):
        addresses = {name: ctypes.cast(functions[name], ctypes.c_void_p).value or 0 for name in NAMES}
        self._loaded = LoadedObjects(compile_object(_CODE, host()), symbols=addresses)
        p, n = ctypes.c_void_p, ctypes.c_int
        self.inputs = ctypes.PYFUNCTYPE(n, p, p, n, p, p, p)(self._loaded.address("inputs"))
        self.outputs = ctypes.PYFUNCTYPE(n, p, p, n, p, p, p, p)(self._loaded.address("outputs"))
        self.release = ctypes.PYFUNCTYPE(None, p, n)(self._loaded.address("release"))
