"""Data for neon: readers of common file layouts, data sets by name, iterators that can be resumed."""

from ngraph.frontends.neon.data.buckets import BucketIterator
from ngraph.frontends.neon.data.datasets import CIFAR10, CIFAR100, IMDB, MNIST, PTB, FashionMNIST, Shakespeare, Text, Vocabulary
from ngraph.frontends.neon.data.iterators import ArrayIterator, Batches, IterableSource, Prefetch, SequentialArrayIterator
