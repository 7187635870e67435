"""All translators: importing this module fills the table."""

from ngraph.frontends.tensorflow import arithmetic, control, host, layers, lists, shapes, state, stateless

__all__ = ["arithmetic", "control", "host", "layers", "lists", "shapes", "state", "stateless"]
