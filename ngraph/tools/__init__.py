"""The `ngraph` command and what it draws.

`main` the command · `verbs` the registry that rooms add to · `load` objects out of a user's program file · `explain` a computation at
any stage, as `pages` too · `ops` tables and docs printed from the records · `graph` pictures of op-graphs, on `layout`, and `viewer`,
one to move around in · `rooms` who imports whom.
"""
