"""Tensor graph → plan: kernels over buffers, found by one fusion pass that knows no op by name.

`kernels`              the data structures: plans, kernels, stages, buffers, stores
`fuse`, `cost`         which nodes become one kernel, and the cost that decides it
`stages`               a fused group as the stages of a kernel
`layout`, `packing`, `padding`, `memory`   packed operands, padded copies, the arena
`schedule`             vectors, tiles and loop order
`deduplication`        kernels of equal structure, which are compiled once
`planner`              all of it in a row, as pipelines of passes over graphs and plans
`text`, `verify`, `interpret`   plans printed and parsed, checked, and run in NumPy

Every core op becomes stages, or an opaque op (sort, compact, cumulate, control flow over sub-plans, effects). Each work item recomputes
small values for itself. A reduction over parallel loops runs in two stages (split-K): partial results lie along an axis `split_k`, and
a second reduction, which is fused like any other, adds them up. How many there are follows from kernel and target alone.

Words: docs/glossary.md.
"""
