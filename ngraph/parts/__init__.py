"""The ground floor: what every other room stands on, of the standard library alone.

`registry` facts about named things, in columns that any package may fill
`runner` passes in a row over any form: what each needs, gives and keeps, and the facts that it reads
`walk` ways through graphs: needs before users, all that something leads to
`storage` from when until when values live, and the lowest place beside those that are taken
`deferred` modules that are loaded on first use
`scopes` values that a block sets for what runs inside

Words: docs/glossary.md.
"""
