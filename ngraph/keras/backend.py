"""The names that Keras takes from a backend."""

# ruff: noqa: F401  Keras imports these names
from keras.src.backend.common.name_scope import name_scope as name_scope

from ngraph.keras import core, image, linalg, math, nn, numpy, operators, random
from ngraph.keras.convert import TracedVariable as Variable
from ngraph.keras.convert import cast, convert_to_numpy, convert_to_tensor, device_scope, is_tensor, random_seed_dtype, shape
from ngraph.keras.core import (
    IS_THREAD_SAFE,
    SUPPORTS_COMPLEX_DTYPES,
    SUPPORTS_RAGGED_TENSORS,
    SUPPORTS_SPARSE_TENSORS,
    compute_output_spec,
    scatter,
    stop_gradient,
    vectorized_map,
)
from ngraph.keras.loops import cond
from ngraph.keras.rnn import bidirectional_gru, bidirectional_lstm, cudnn_ok, gru, lstm, rnn

__all__ = [name for name in dir() if not name.startswith("_")]
