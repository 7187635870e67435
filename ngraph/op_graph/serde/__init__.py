"""Graphs as bytes under the names of 2017 to 2019; `ngraph.op_graph.text` has their format. Words: docs/glossary.md."""
