"""Ways out of ngraph: programs as files that others run; nothing here is imported by `import ngraph`."""
