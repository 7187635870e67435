"""All translators: importing this module fills the table."""

from ngraph.frontends.tensorflow import arithmetic, control, layers, shapes, state

__all__ = ["arithmetic", "control", "layers", "shapes", "state"]
