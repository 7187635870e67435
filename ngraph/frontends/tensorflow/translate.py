"""All translators: importing this module fills the table."""

from ngraph.frontends.tensorflow import (
    arithmetic,
    control,
    host,
    layers,
    lists,
    quantised,
    shapes,
    signals,
    sparse,
    state,
    stateless,
    vision,
)

__all__ = ["arithmetic", "control", "host", "layers", "lists", "quantised", "shapes", "signals", "sparse", "state", "stateless", "vision"]
