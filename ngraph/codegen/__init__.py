"""Generates LLVM IR: `text` writes it, `math` has each elementwise op once, `kernel` and `nest` write kernels, `routines` opaque ops.

Words: docs/glossary.md.
"""
