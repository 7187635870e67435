"""The base of Keras's layers: nothing of the backend's own."""


class NgraphLayer:
    """A layer of Keras."""
