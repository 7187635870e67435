"""Machine code: `text` writes final LLVM IR, `math` holds each elementwise op once, `jit` makes objects of IR, `loader` runs them."""
