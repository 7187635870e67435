"""Every module of translators, imported so that they register."""

from importlib import import_module

MODULES = "arithmetic attention control layers microsoft ml products quantised recurrent sampling shapes signal text trees"

for _name in MODULES.split():
    import_module(f"ngraph.frontends.onnx.{_name}")
