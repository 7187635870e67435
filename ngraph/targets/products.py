"""Product instructions as rows: how many products they add to how many sums, of which dtypes, in which vectors, and how LLVM writes them.

A row is a machine's way of a small matrix product: m x k values times k x n values, added to m x n sums in each lane. An ordinary fused
multiply-add is (1, 1, 1). Where only k is more than one, the k operands of a sum lie beside each other in 32 bits. Plans name the
operation, not the machine's instruction: `dot2(x, y)` is the sum of two products, its operands are made by `pack2(a, b)`. A machine
without a row for it does the same by several instructions, and gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType

PACKED_BITS = 32  # in which the operands of one sum lie beside each other


@dataclass(frozen=True)
class ProductInstruction:
    """One row of a machine's table.

    name        what vendors call it
    m, n, k     sums are m x n, of k products each
    operands    the dtypes of both factors
    sum         the dtype of the sums
    lanes       the sums of one instruction, each length that there is; none where any length will do
    intrinsic   LLVM's function, with the `{bits}` of its vector of sums
    passed      LLVM's type of the elements of its operands; "" where they are passed as they lie, in 32 bits
    flag        the flag of /proc/cpuinfo of a processor that has it, beside what all of its level have
    registers   of matrices, one for each tile of sums or of a factor; 0 where operands are vectors
    feature     LLVM's word for it
    """

    name: str
    m: int
    n: int
    k: int
    operands: tuple[DType, DType]
    sum: DType
    lanes: tuple[int, ...] = ()
    intrinsic: str = ""
    passed: str = ""
    flag: str = ""
    feature: str = ""
    registers: int = 0

    @property
    def op(self) -> str:
        """The operation of plans whose sum it adds to."""
        if self.m * self.n > 1:
            return f"mma{self.m}x{self.n}x{self.k}"
        return "multiply" if self.k == 1 else f"dot{self.k}"

    @property
    def pack(self) -> str:
        """The operation of plans that makes its operands."""
        return f"pack{self.k}"

    @property
    def operand_bits(self) -> int:
        """Of each of the k values of an operand."""
        return PACKED_BITS // self.k


FLOAT32 = (dtypes.float32, dtypes.float32)
FLOAT64 = (dtypes.float64, dtypes.float64)
BFLOAT16 = (dtypes.bfloat16, dtypes.bfloat16)
BYTES = (dtypes.uint8, dtypes.int8)

FMA = ProductInstruction("FMA", 1, 1, 1, FLOAT32, dtypes.float32, intrinsic="fma")
FMA64 = ProductInstruction("FMA", 1, 1, 1, FLOAT64, dtypes.float64, intrinsic="fma")
AVX512_BF16 = ProductInstruction(
    "AVX512_BF16", 1, 1, 2, BFLOAT16, dtypes.float32, (4, 8, 16), "x86.avx512bf16.dpbf16ps.{bits}", "bfloat", "avx512_bf16", "+avx512bf16"
)
AVX512_VNNI = ProductInstruction(
    "AVX512_VNNI", 1, 1, 4, BYTES, dtypes.int32, (4, 8, 16), "x86.avx512.vpdpbusd.{bits}", "", "avx512_vnni", "+avx512vnni"
)
AVX_VNNI = ProductInstruction("AVX_VNNI", 1, 1, 4, BYTES, dtypes.int32, (4, 8), "x86.avx512.vpdpbusd.{bits}", "", "avx_vnni", "+avxvnni")
AMX_BF16 = ProductInstruction(
    "AMX_BF16", 16, 16, 32, BFLOAT16, dtypes.float32, (16,), "x86.tdpbf16ps", "", "amx_bf16", "+amx-tile,+amx-bf16", registers=8
)
AMX_INT8 = ProductInstruction(
    "AMX_INT8", 16, 16, 64, BYTES, dtypes.int32, (16,), "x86.tdpbusd", "", "amx_int8", "+amx-tile,+amx-int8", registers=8
)
I8MM = ProductInstruction("I8MM", 1, 1, 4, BYTES, dtypes.int32, (4,), "aarch64.neon.usdot.v4i32.v16i8", "i8", "i8mm", "+i8mm")
MMA_BF16 = ProductInstruction("MMA", 16, 8, 16, BFLOAT16, dtypes.float32, (32,), "nvvm.mma.m16n8k16.row.col.bf16")
WGMMA_BF16 = ProductInstruction("WGMMA", 64, 256, 16, BFLOAT16, dtypes.float32, (128,), "nvvm.wgmma.mma_async.m64n256k16.f32.bf16")

# what each operation of plans adds up: all rows of one operation agree in that
PRODUCTS = {row.op: row for row in (FMA, AVX512_BF16, AVX512_VNNI)}
DOTS = {op: row for op, row in PRODUCTS.items() if row.k > 1}
PACKS = {row.pack: row for row in DOTS.values()}
