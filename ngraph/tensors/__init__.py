"""Program → tensor graph: scalar operations over index spaces, and rewrites of it. Nothing here knows of kernels or of memory.

`graph`, `edit`        tensor graphs, which are values, and drafts of them while they are changed
`build`                a program as scalar operations over index spaces
`text`, `verify`, `interpret`   graphs printed and parsed, checked, and run in NumPy; `scalars` is what operations give
`index`                what a read is, and what follows from its index
`digits`               axes that are read at digits of their index, split
`simplify`             axes renamed, multiply-adds fused, reductions in parts
`control`              orders of axes that bodies share with what is around them
`strided_reductions`   reductions of strided windows as one dense reduction for each residue class
`winograd`             convolutions by fewer products
`int8_dot`, `bf16_dot`, `float_dot`   sums of products by dot-product instructions, or of integers in floats, where `value_range` allows
`layout`, `contraction`   what is kept for many calls, what is computed again, and orders of axes
`memo`                 values that are made once for equal arguments

Words: docs/glossary.md.
"""
