"""Formats whose tensors have dims by position, such as ONNX, read into the op-graph: all that is no one format's own.

values       what a name stands for while a graph is read: an op and its dims in some order, an array, sizes, strings, a list
trace        one reading of a graph for one call: lengths that stay open, questions, what has to be computed before it goes on
stages       what a reading leaves: questions, computations, steps in Python, followed by later calls
walk         nodes in their order, each from values to values; branches, loops and functions are graphs within a graph
reader       a model's graph, read as calls need it
ports        inputs and outputs, and a call's arrays made to fit them
model        what users call; index finds what an earlier process compiled
formats      what each format is called and what reads it

Words: docs/glossary.md.
"""
