"""The importer of 2016 to 2019 under its own names: op-graphs of TensorFlow's graphs, node by node. Words: docs/glossary.md."""
