"""Names that importers of 2016 to 2019 shared. Words: docs/glossary.md."""
