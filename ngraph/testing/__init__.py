"""Tools for testing records, transformers and programs: sample inputs, and executors."""
