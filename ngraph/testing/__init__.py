"""What tests of programs written with ngraph need: executors, derivatives by differences, random arrays, reference convolutions.

    executor, ExecutorFactory                    computations on a transformer of their own
    numeric_derivative, check_derivative         `ng.deriv` against differences
    RandomTensorGenerator, assert_allclose       arrays of given axes, and their comparison
    ConvParams, reference_conv, reference_deconv_fprop, reference_deconv_bprop
    raise_all_numpy_errors, with_error_settings  floating-point warnings as errors

`samples` and `rules` hold what the tests generated from op records and rewrite rules are made of.
"""

from ngraph.testing.arrays import RandomTensorGenerator, assert_allclose, is_flex_factory, raise_all_numpy_errors, with_error_settings
from ngraph.testing.convolutions import ConvParams, reference_conv, reference_deconv_bprop, reference_deconv_fprop
from ngraph.testing.derivatives import ExecutorFactory, check_derivative, numeric_derivative
from ngraph.util.utils import executor
