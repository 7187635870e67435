"""The straight line between what a user means and what a machine does.

`program` the nouns · `lower` op-graph → program · `verify` the law · `text` print, parse, JSON · `interpret` the meaning, by the
records' references: as plain as possible, runs no pass, shares nothing with any transformer.
"""
