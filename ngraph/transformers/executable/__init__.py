"""Runs compiled plans on a kind of machine, of which it knows what `device.KernelDevice` says: memory, copies, launches of kernels.

`versions` a program, compiled for the lengths of its calls · `code` a plan with its kernels loaded · `layout` where its buffers lie ·
`frame` the memory of one call · `table` its instructions · `walk` these in Python, where a device has nothing faster · `portable` tables
without addresses · `callbacks` steps that Python runs · `cached` calls of what an earlier process compiled · `profile`, `compared` where
time goes, and whether kernels do what the plan says.

Words: docs/glossary.md.
"""
