"""Op-graphs as ONNX files.

    results and parameters as ops  →  a program, in which ops that ONNX has whole stay whole  →  passes
    →  `Writer`: a rule for each op gives nodes; here axes get positions  →  nodes that nothing needs go  →  bytes

The rules stand in `rules`, `moving`, `products` and `loops`; that ops have a counterpart one to one is said by their records. `model` does
the whole, `file` writes it.
"""
