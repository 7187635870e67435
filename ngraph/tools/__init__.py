"""The `ngraph` command, and the pictures that it draws.

`main` the command · `verbs` the registry that rooms extend · `load` objects from a user's program file · `explain` a computation at
any stage, also as `pages` · `ops` tables and docs printed from the records · `graph` pictures of op-graphs, on `layout`, and `viewer`,
a navigable one · `rooms` the imports between rooms.

Words: docs/glossary.md.
"""
