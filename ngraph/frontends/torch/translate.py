"""Every module of translators, imported so that they register."""

from importlib import import_module

MODULES = (
    "pointwise reducing moving layers pooling indexing matrices ordering special control recurrent drawing quantised resizing checking"
)

for _name in MODULES.split():
    import_module(f"ngraph.frontends.torch.{_name}")
