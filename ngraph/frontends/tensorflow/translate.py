"""All translators: importing this module fills the table."""

from ngraph.frontends.tensorflow import arithmetic, control, layers, lists, shapes, state, stateless

__all__ = ["arithmetic", "control", "layers", "lists", "shapes", "state", "stateless"]
