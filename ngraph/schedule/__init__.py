"""Kernels of a plan → scheduled kernels: how each runs on one kind of machine, as values that print, parse, verify and run in NumPy.

`form`      the data structures: scheduled kernels, versions, stages, loops, accesses
`linear`    indices as sums of multiples of loop counters
`address`   addresses of a stage's reads and stores, which all schedulers share
`search`    the cheapest vectors, register tile and order of a loop nest, by counting
`cpu`       schedules for processors
`cost`      predicted seconds of a scheduled kernel
`gpu`       schedules for graphics processors, which are described and which no code is generated for

Words: docs/glossary.md.
"""
