"""Tools for tests of programs written with ngraph: executors, numeric derivatives, random arrays, reference convolutions.

    executor, ExecutorFactory                    computations on a transformer of their own
    RandomTensorGenerator, assert_allclose       arrays of given axes, and their comparison
    ConvParams, reference_conv, reference_deconv_fprop, reference_deconv_bprop
    raise_all_numpy_errors, with_error_settings  floating-point warnings as errors

`samples` and `rules` are the basis of the tests generated from op records and rewrite rules.

Words: docs/glossary.md.
"""

from ngraph.testing.arrays import RandomTensorGenerator, assert_allclose, is_flex_factory, raise_all_numpy_errors, with_error_settings
from ngraph.testing.convolutions import ConvParams, reference_conv, reference_deconv_bprop, reference_deconv_fprop
from ngraph.testing.derivatives import ExecutorFactory, check_derivative, numeric_derivative
from ngraph.util.utils import executor

__all__ = [
    "ConvParams",
    "ExecutorFactory",
    "RandomTensorGenerator",
    "assert_allclose",
    "check_derivative",
    "executor",
    "is_flex_factory",
    "numeric_derivative",
    "raise_all_numpy_errors",
    "reference_conv",
    "reference_deconv_bprop",
    "reference_deconv_fprop",
    "with_error_settings",
]
