"""Frontends: ways of writing models, and readers of other frameworks' files; nothing here is imported by `import ngraph`.

Words: docs/glossary.md."""
