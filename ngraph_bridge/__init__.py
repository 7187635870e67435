"""The bridge under the name and with the functions that it had in 2019: `import ngraph_bridge` enables it.

    >>> import tensorflow as tf
    >>> import ngraph_bridge
    >>> ngraph_bridge.is_enabled()
    True

`ng.tensorflow.bridge` has the same functions, and enables nothing by itself. Source: ngraph-bridge 0.18.1, Apache 2.0.
"""

import ngraph as _ngraph
from ngraph.bridge import (
    disable,
    enable,
    function,
    get_backend,
    get_disabled_ops,
    is_enabled,
    is_logging_placement,
    is_supported_backend,
    list_backends,
    report,
    set_backend,
    set_disabled_ops,
    start_logging_placement,
    stop_logging_placement,
)

# isort: split
import tensorflow as _tensorflow  # behind ngraph.bridge, which says what to install where it is missing

__all__ = [
    "backends_len",
    "cxx11_abi_flag",
    "disable",
    "enable",
    "function",
    "get_backend",
    "get_currently_set_backend_name",
    "get_disabled_ops",
    "is_enabled",
    "is_grappler_enabled",
    "is_logging_placement",
    "is_supported_backend",
    "are_variables_enabled",
    "list_backends",
    "report",
    "set_backend",
    "set_disabled_ops",
    "start_logging_placement",
    "stop_logging_placement",
    "update_config",
]

cxx11_abi_flag = int(_tensorflow.sysconfig.CXX11_ABI_FLAG)

__version__ = (
    f"nGraph bridge version: {_ngraph.__version__}\n"
    f"nGraph version used for this build: {_ngraph.__version__}\n"
    f"TensorFlow version used for this build: {_tensorflow.__version__}\n"
    f"CXX11_ABI flag used for this build: {cxx11_abi_flag}\n"
    "nGraph bridge built with Grappler: False\n"
    "nGraph bridge built with Variables and Optimizers Enablement: False\n"
)

get_currently_set_backend_name = get_backend


def backends_len() -> int:
    """Returns how many names `list_backends` has."""
    return len(list_backends())


def is_grappler_enabled() -> bool:
    """Returns whether the bridge is an optimizer of Grappler's: no, it is where Python calls functions."""
    return False


def are_variables_enabled() -> bool:
    """Returns whether ngraph keeps variables: no, they are TensorFlow's."""
    return False


def update_config(config: object, backend_name: str = "CPU", device_id: str = "") -> object:
    """Returns a session's configuration as it is: only Grappler needed another one."""
    return config


enable()
