"""The op vocabulary: one record per op, one file per family.

`elementwise` arithmetic, comparisons, functions · `equality` == and != of `Op` · `reduce` sums and other reductions · `linear` dot and
contraction · `convolution` · `pooling` · `rearrange` axes and positions · `indexing` gather, scatter, one_hot · `sorting` · `control` scan,
while, cond, effect · `random` · `state` variables, assign, sequential · `losses` softmax and cross-entropies.

Words: docs/glossary.md.
"""

from ngraph.ops import equality
