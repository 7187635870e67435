"""The ground floor: what every other room stands on, of the standard library alone.

`registry` facts about named things, in columns that any package may fill
`runner` passes in a row over any form: what each needs, gives and keeps, and the facts that it reads

Words: docs/glossary.md.
"""
