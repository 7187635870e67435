"""The layer between a compiled program and its caller.

`computation` the callable: arguments in, results out · `arguments` conversion of arguments to arrays of the program's inputs · `state`
variables that computations share, and their lock · `weights` state on disk · `watching` the context that kernels run in.

This room receives its transformer as an argument; it uses an executable only by calling it.

Words: docs/glossary.md.
"""
