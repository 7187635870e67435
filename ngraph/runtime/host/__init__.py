"""Execution of machine code in this process: addresses, objects and threads, independent of programs and plans.

`jit` IR to objects by LLVM · `worker`, `workers` the same in processes beside this one · `loader` objects into executable memory ·
`bytecode` the instructions of tables · `image` a table without addresses, as bytes · `pool` the threads, and the generated code that runs
a table on them · `entry` the way from Python into a table · `locks` those that a forked child process finds free.

Words: docs/glossary.md.
"""
