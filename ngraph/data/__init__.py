"""Data sets for the examples: handwritten digits, from a folder, from the npm registry, or the small ones inside the package.

>>> data = digits()
>>> data.name, data.train.images.shape, data.test.images.shape
('8x8 digits', (1437, 8, 8), (360, 8, 8))

Words: docs/glossary.md.
"""

from ngraph.data.digits import Digits, DigitSet, digits
from ngraph.data.mnist import mnist, mnist_or_digits, read_idx
