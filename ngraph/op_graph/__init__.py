"""The user's graph: ops over named axes.

`axes` names and lengths · `expr` integer expressions over them · `dtypes` element types · `op` the node and its traversal ·
`opdef` the record of an op and the registry · `names` scopes and notes · `text` printing, parsing, saving, loading.

This room imports nothing of `ops`, of any transformer or frontend: it can be used alone, with records from another package.

Words: docs/glossary.md.
"""
