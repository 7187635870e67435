"""Data for the walk-through: a mixture of Gaussians, each pushed through a linear map of its own."""

from __future__ import annotations

import numpy as np


class MixtureGenerator:
    """Draws labelled examples from classes with probabilities `pvals`; an example is an array of `shape`.

    Class y gives A[..., y] z + b[..., y], where z is Gaussian noise of deviation 0.3, flattened. One seed, one data set.
    """

    def __init__(self, pvals, shape, seed=0):
        self.shape, size = tuple(shape), int(np.prod(shape, dtype=int))
        self.upto = np.cumsum(pvals)
        self.random = np.random.RandomState(seed)
        self.A = self.random.uniform(-1, 1, (size, size, len(pvals)))
        self.b = self.random.uniform(-1, 1, (size, len(pvals)))

    def gen_data(self, batch_size, n_batches):
        """Two lists of `n_batches` arrays: examples with the axes `shape` and the batch last, and their classes."""
        batches = [self._batch(batch_size) for _ in range(n_batches)]
        return [xs for xs, _ in batches], [ys for _, ys in batches]

    def _batch(self, batch_size):
        drawn = self.random.uniform(0, 1, batch_size)
        ys = np.minimum(np.searchsorted(self.upto, drawn, side="right"), len(self.upto) - 1)
        z = self.random.normal(0, 0.3, (*self.shape, batch_size)).reshape(-1, batch_size)
        xs = np.einsum("fgn,gn->fn", self.A[..., ys], z) + self.b[..., ys]
        return xs.reshape(*self.shape, batch_size), ys
