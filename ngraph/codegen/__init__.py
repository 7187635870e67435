"""Machine code: `text` writes final LLVM IR, `math` holds each elementwise op once, `jit` turns IR into callable addresses."""
