"""neon: layers that read like the model's description, on named axes; one loop that trains them."""

from ngraph.frontends.neon.activations import (
    ELU,
    Explin,
    Gelu,
    Identity,
    Logistic,
    Normalizer,
    Rectlin,
    Rectlinclip,
    Silu,
    Softmax,
    Softplus,
    Tanh,
)
from ngraph.frontends.neon.attention import Growing, MultiHeadAttention, TransformerBlock
from ngraph.frontends.neon.axis import ar, ax
from ngraph.frontends.neon.containers import BoundComputation, Container, Parallel, ResidualModule, Sequential, make_bound_computation
from ngraph.frontends.neon.convolution import ConvBase, Convolution, DeconvBase, Deconvolution, GlobalPooling, Pooling, make_conv
from ngraph.frontends.neon.costs import (
    CTC,
    Cost,
    CrossEntropyBinary,
    CrossEntropyMulti,
    Huber,
    MeanAbsolute,
    MeanSquared,
    SquaredL2,
    Triplet,
)
from ngraph.frontends.neon.graph import ComputationalGraph, SubGraph, scope_ops
from ngraph.frontends.neon.initializers import ConstantInit, GaussianInit, GlorotInit, KaimingInit, OrthogonalInit, UniformInit, XavierInit
from ngraph.frontends.neon.layer import Layer, inference_mode_on, precision
from ngraph.frontends.neon.layers import Activation, Affine, Bias, Dropout, Embedding, Linear, LookupTable, Preprocess, TiedLinear
from ngraph.frontends.neon.metrics import (
    AUC,
    F1,
    MAE,
    MSE,
    Accuracy,
    BitsPerCharacter,
    ConfusionMatrix,
    Metric,
    Misclassification,
    Perplexity,
    Precision,
    Recall,
    TopK,
)
from ngraph.frontends.neon.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from ngraph.frontends.neon.optimizers import (
    LAMB,
    Adagrad,
    Adam,
    AdamW,
    GradientDescentMomentum,
    Nadam,
    Optimizer,
    RMSProp,
    clip_gradient_norm,
    clip_gradient_value,
    clip_weight_value,
)
from ngraph.frontends.neon.recurrent import GRU, LSTM, BaseRNNCell, BiRNN, GRUCell, LSTMCell, Recurrent, RNNCell, unroll
from ngraph.frontends.neon.schedules import Cosine, OneCycle, Schedule, Warmup
