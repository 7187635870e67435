"""The vocabulary: one record per op, one file per family.

`elementwise` arithmetic, comparisons, functions · `equality` == and !=, which it hands to `Op` · `reduce` sums and their kin · `linear`
dot and contraction · `convolution` · `pooling` · `rearrange` axes and positions · `indexing` gather, scatter, one_hot · `sorting` ·
`control` scan, while, cond, effect · `random` · `state` variables, assign, sequential · `losses` softmax and cross-entropies.
"""

from ngraph.ops import equality
