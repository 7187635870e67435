"""Small helpers that users import by name; see `utils`. Words: docs/glossary.md."""
