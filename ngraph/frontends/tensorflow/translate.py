"""All translators: importing this module fills the table."""

from importlib import import_module

MODULES = "arithmetic control host layers lists quantised shapes signals sparse state stateless vision"

for _name in MODULES.split():
    import_module(f"ngraph.frontends.tensorflow.{_name}")
