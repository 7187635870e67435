"""Ways into ngraph for people and for files of other frameworks; nothing here is imported by `import ngraph`."""
