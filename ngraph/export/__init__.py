"""Export of programs to files that other systems run; nothing here is imported by `import ngraph`. Words: docs/glossary.md."""
