"""What stands between a compiled program and its caller.

`computation` the callable: arguments in, results out · `arguments` arrays of any kind as what a program wants · `state` variables
that computations share, and their lock · `weights` state on disk.

This room is given its transformer; it knows of an executable only how to call it.
"""
