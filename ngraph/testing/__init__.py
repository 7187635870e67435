"""What tests of programs written with ngraph need: `executor` here, sources of samples in `samples`."""

from ngraph.util.utils import executor
