"""The intermediate representation between the user's graph and the machine: a straight line of core ops.

`program` the data structures · `lower` op-graph → program · `verify` the verifier · `text` print, parse, JSON · `interpret` the semantics,
by the records' references: as plain as possible, without a pass, and sharing nothing with any transformer.

Words: docs/glossary.md.
"""
