"""Op-graphs as ONNX files.

    results and parameters as ops  →  a program in which composite ops that ONNX has are kept  →  passes
    →  `Writer`: each op's rule gives nodes, and axes get positions  →  nodes without uses are removed  →  bytes

The rules are in `rules`, `moving`, `products` and `loops`; one-to-one counterparts are in the ops' records. `model` controls the
whole, `file` writes it.
"""
