"""Records small TensorFlow models with their answers, for tests that run without TensorFlow.

    python record.py FOLDER        # in an environment with tensorflow-cpu==2.21.0

Each model becomes FOLDER/NAME.pb (a frozen graph), or a folder with a SavedModel, and FOLDER/NAME.npz with inputs `in:KEY` and outputs
`out:KEY`. Single ops are recorded in one file, `ops.npz`, with the bytes of their graphs.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf

F = np.float32
R = np.random.default_rng(7)


def x(*shape, low=-2.0, high=2.0, dtype=F):
    return R.uniform(low, high, shape).astype(dtype)


def i(*shape, low=0, high=5, dtype=np.int32):
    return R.integers(low, high, shape).astype(dtype)


raw = tf.raw_ops
CASES = {}


def case(name, function, *inputs):
    assert name not in CASES, name
    CASES[name] = function, inputs


# ---- elementwise
for op in (
    "Abs Neg Sign Square Exp Expm1 Sin Cos Tan Atan Sinh Cosh Asinh Tanh Sigmoid Erf Erfc Floor Ceil Round Rint Relu Relu6 Elu Selu "
    "Softplus Softsign IsNan IsInf IsFinite ZerosLike OnesLike Reciprocal"
).split():
    named = "features" if op in ("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign") else "x"
    case(op, lambda a, op=op, named=named: getattr(raw, op)(**{named: a}), x(3, 5))
for op in "Sqrt Rsqrt Log Log1p Acosh Lgamma Digamma".split():
    case(op, lambda a, op=op: getattr(raw, op)(x=a), x(4, 3, low=1.1, high=4))
for op in "Asin Acos Atanh Erfinv".split():
    case(op, lambda a, op=op: getattr(raw, op)(x=a), x(4, 3, low=-0.9, high=0.9))
for op in (
    "Add AddV2 Sub Mul MulNoNan RealDiv DivNoNan FloorDiv FloorMod TruncateMod Maximum Minimum SquaredDifference Atan2 Less LessEqual "
    "Greater GreaterEqual Equal NotEqual"
).split():
    case(op, lambda a, b, op=op: getattr(raw, op)(x=a, y=b), x(3, 1, 5), x(4, 5))
for op in "Add FloorDiv FloorMod TruncateDiv TruncateMod BitwiseAnd BitwiseOr BitwiseXor Maximum".split():
    case(
        f"{op}_int", lambda a, b, op=op: getattr(raw, op)(x=a, y=b), i(3, 5, low=-9, high=9), i(3, 5, low=1, high=5) * F(1).astype(np.int32)
    )
case("LeftShift", lambda a, b: raw.LeftShift(x=a, y=b), i(6, low=1, high=50), i(6, low=0, high=9))
case("RightShift", lambda a, b: raw.RightShift(x=a, y=b), i(6, low=-50, high=50), i(6, low=0, high=9))
case("Invert", lambda a: raw.Invert(x=a), i(6, low=-9, high=9))
case("Pow", lambda a, b: raw.Pow(x=a, y=b), x(3, 4, low=0.1), x(3, 4))
case("Xdivy", lambda a, b: raw.Xdivy(x=a, y=b), np.array([0, 1, 2, 0], F), np.array([0, 2, 3, 1], F))
case("Xlogy", lambda a, b: raw.Xlogy(x=a, y=b), np.array([0, 1, 2, 0], F), np.array([0, 2, 3, 1], F))
case("LogicalAnd", lambda a, b: raw.LogicalAnd(x=a > 0, y=b > 0), x(5), x(5))
case("LogicalNot", lambda a: raw.LogicalNot(x=a > 0), x(5))
case("Cast", lambda a: (tf.cast(a, tf.int32), tf.cast(a, tf.bool), tf.cast(a, tf.float64), tf.cast(a, tf.uint8)), x(7, low=0, high=9))
case("Cast_half", lambda a: tf.cast(tf.cast(a, tf.float16), tf.float32) + tf.cast(tf.cast(a, tf.bfloat16), tf.float32), x(7))
case("Bitcast", lambda a: raw.Bitcast(input=a, type=tf.int32), x(7))
case("SelectV2", lambda c, a, b: tf.where(c > 0, a, b), x(3, 1), x(3, 4), x(4))
case("Select", lambda c, a, b: raw.Select(condition=c > 0, x=a, y=b), x(3), x(3, 4), x(3, 4))
case("ClipByValue", lambda a: raw.ClipByValue(t=a, clip_value_min=-0.5, clip_value_max=0.7), x(9))
case("AddN", lambda a, b, c: raw.AddN(inputs=[a, b, c]), x(3, 4), x(3, 4), x(3, 4))
case("LeakyRelu", lambda a: tf.nn.leaky_relu(a, 0.3), x(9))
case("BiasAdd", lambda a, b: tf.nn.bias_add(a, b), x(2, 3, 4, 5), x(5))
case("BiasAdd_first", lambda a, b: tf.nn.bias_add(a, b, "NCHW"), x(2, 5, 3, 4), x(5))
for op in "ReluGrad Relu6Grad SoftplusGrad SoftsignGrad".split():
    case(op, lambda a, b, op=op: getattr(raw, op)(gradients=a, features=b), x(9), x(9))
for op in "EluGrad SeluGrad".split():
    case(op, lambda a, b, op=op: getattr(raw, op)(gradients=a, outputs=b), x(9), x(9, low=-0.9))
for op in "SigmoidGrad TanhGrad SqrtGrad RsqrtGrad ReciprocalGrad".split():
    case(op, lambda a, b, op=op: getattr(raw, op)(y=a, dy=b), x(9, low=0.2), x(9))

# ---- reductions
for op in "Sum Mean Max Min Prod".split():
    for axes, keep in (([1], False), ([0, 2], True), ([-1], False)):
        case(f"{op}{axes}{keep}", lambda a, op=op, axes=axes, keep=keep: getattr(raw, op)(input=a, axis=axes, keep_dims=keep), x(3, 4, 5))
case("Sum_none", lambda a: tf.reduce_sum(a), x(3, 4))
case("All", lambda a: (tf.reduce_all(a > -1, 0), tf.reduce_any(a > 1, 1)), x(3, 4))
case("Logsumexp", lambda a: tf.reduce_logsumexp(a, 1), x(3, 4))
case("EuclideanNorm", lambda a: raw.EuclideanNorm(input=a, axis=[1], keep_dims=False), x(3, 4))
case("ArgMax", lambda a: (tf.argmax(a, 1), tf.argmin(a, 0, tf.int32)), x(3, 4))
case("Cumsum", lambda a: (tf.cumsum(a, 1), tf.cumsum(a, 0, True, True), tf.math.cumprod(a, 1)), x(3, 4))
case("Softmax", lambda a: (tf.nn.softmax(a), tf.nn.log_softmax(a)), x(3, 4))
case("L2Loss", lambda a: tf.nn.l2_loss(a), x(3, 4))
case("SparseXent", lambda a, b: raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=b), x(6, 5), i(6))
case("Xent", lambda a, b: raw.SoftmaxCrossEntropyWithLogits(features=a, labels=b), x(6, 5), x(6, 5, low=0, high=1))

# ---- products
case("MatMul", lambda a, b: (a @ b, tf.matmul(b, a, True, True)), x(3, 4), x(4, 5))
case("BatchMatMul", lambda a, b: (tf.matmul(a, b), tf.matmul(b, a, True, True)), x(2, 1, 3, 4), x(5, 4, 6))
case("Einsum", lambda a, b: (tf.einsum("bij,bjk->bik", a, b), tf.einsum("bij,bkj->ik", a, a)), x(2, 3, 4), x(2, 4, 5))
case("Linalg", lambda a: (tf.linalg.cholesky(a @ tf.transpose(a) + tf.eye(4)), tf.linalg.det(a), tf.linalg.inv(a + 4 * tf.eye(4))), x(4, 4))
case(
    "Solve", lambda a, b: (tf.linalg.solve(a + 4 * tf.eye(4), b), tf.linalg.triangular_solve(a + 4 * tf.eye(4), b)), x(2, 4, 4), x(2, 4, 3)
)

# ---- shapes
case(
    "Reshape", lambda a: (tf.reshape(a, [2, -1]), tf.reshape(a, tf.reverse(tf.shape(a), [0])), tf.shape(a), tf.size(a), tf.rank(a)), x(3, 4)
)
case("Expand", lambda a: (tf.expand_dims(a, 1), tf.squeeze(tf.expand_dims(a, 0)), tf.squeeze(tf.expand_dims(a, 0), [0])), x(3, 4))
case("Transpose", lambda a: (tf.transpose(a), tf.transpose(a, [1, 0, 2])), x(2, 3, 4))
case("Strided", lambda a: (a[1:, ::2], a[..., 1], a[:, tf.newaxis, -1], a[::-1, 3:0:-2], a[-2:, 1:-1, 0], a[1]), x(4, 5, 3))
case("Slice", lambda a: (tf.slice(a, [1, 0], [2, -1]), tf.slice(a, [0, 2], [-1, 2])), x(4, 5))
case("Split", lambda a: (*tf.split(a, 3, 1), *tf.split(a, [1, -1, 2], 1), *tf.unstack(a)), x(2, 6))
case("Concat", lambda a, b: (tf.concat([a, b], 0), tf.stack([a, a], 1), tf.concat([a, b, a], -2)), x(2, 3), x(4, 3))
case("Tile", lambda a: (tf.tile(a, [2, 3]), tf.broadcast_to(a[:1], [4, 3]), tf.fill([2, 3], 1.5)), x(2, 3))
case("Range", lambda a: (tf.range(2, 20, 3), tf.range(tf.shape(a)[0]), tf.linspace(0.0, 1.0, 5)), x(4, 3))
case(
    "Pad",
    lambda a: (
        tf.pad(a, [[1, 2], [0, 1]]),
        tf.pad(a, [[1, 1], [2, 0]], "REFLECT"),
        tf.pad(a, [[1, 1], [0, 2]], "SYMMETRIC"),
        tf.pad(a, [[1, 0], [0, 0]], constant_values=3.0),
    ),
    x(3, 4),
)
case(
    "Gather", lambda a, b: (tf.gather(a, b), tf.gather(a, b, axis=1), tf.gather(a, tf.stack([b, b, b, b, b]), batch_dims=1)), x(5, 6), i(4)
)
case("GatherNd", lambda a, b: (tf.gather_nd(a, b), tf.gather_nd(a, b[:, :1])), x(5, 6), i(7, 2))
case(
    "Scatter",
    lambda a, b, c: (
        tf.tensor_scatter_nd_update(a, [[0, 1], [3, 2]], [9.0, 8.0]),
        tf.tensor_scatter_nd_add(a, b, c),
        tf.scatter_nd(b, c, [6, 5]),
    ),
    x(5, 6),
    i(7, 2),
    x(7),
)
case(
    "Segments",
    lambda a, b: (tf.math.unsorted_segment_sum(a, b, 6), tf.math.segment_sum(a, [0, 0, 1, 3]), tf.math.unsorted_segment_max(a, b, 5)),
    x(4, 3),
    i(4),
)
case("OneHot", lambda a: (tf.one_hot(a, 4), tf.one_hot(a, 6, 2.0, -1.0, 0), tf.one_hot(a - 1, 5, axis=1)), i(3, 2))
case("Reverse", lambda a: (tf.reverse(a, [1]), tf.reverse_sequence(a, [2, 4, 1], 1, 0), tf.roll(a, [2, -1], [1, 0])), x(3, 5))
case("TopK", lambda a: raw.TopKV2(input=a, k=3, sorted=True), x(4, 7))
case("Where", lambda a: tf.where(a > 0), x(4, 5))
case("Unique", lambda a: tf.unique(a), i(9))
case("Invert_permutation", lambda a: tf.math.invert_permutation(tf.argsort(a)), x(7))
case("Band", lambda a: (tf.linalg.band_part(a, 1, 2), tf.linalg.band_part(a, -1, 0), tf.linalg.band_part(a, 0, -1)), x(2, 4, 5))
case("Blocks", lambda a: (tf.nn.depth_to_space(a, 2), tf.nn.space_to_depth(a, 2)), x(2, 4, 6, 8))
case(
    "Batches",
    lambda a: (
        tf.space_to_batch(a, [2, 3], [[0, 0], [1, 2]]),
        tf.batch_to_space(tf.space_to_batch(a, [2, 3], [[0, 0], [0, 0]]), [2, 3], [[0, 1], [1, 1]]),
    ),
    x(2, 4, 6, 3),
)
case("Zeros", lambda a: tf.zeros([tf.shape(a)[0], 3]) + tf.ones(3), x(4, 2))

# ---- layers
for pad in ("SAME", "VALID"):
    for stride, dilation in ((1, 1), (2, 1), (1, 2)):
        case(
            f"Conv2D_{pad}_{stride}{dilation}",
            lambda a, w, p=pad, s=stride, d=dilation: tf.nn.conv2d(a, w, s, p, dilations=d),
            x(2, 9, 8, 3),
            x(3, 2, 3, 4),
        )
    case(f"Depthwise_{pad}", lambda a, w, p=pad: tf.nn.depthwise_conv2d(a, w, [1, 2, 2, 1], p), x(2, 9, 8, 3), x(3, 3, 3, 2))
    case(
        f"Transposed_{pad}",
        lambda a, w, p=pad: tf.nn.conv2d_transpose(a, w, [2, 8, 10, 4] if p == "SAME" else [2, 9, 11, 4], 2, p),
        x(2, 4, 5, 3),
        x(3, 3, 4, 3),
    )
    case(f"Conv3D_{pad}", lambda a, w, p=pad: tf.nn.conv3d(a, w, [1, 2, 1, 1, 1], p), x(1, 5, 6, 4, 2), x(3, 3, 3, 2, 3))
    case(
        f"Pools_{pad}",
        lambda a, p=pad: (tf.nn.max_pool2d(a, 3, 2, p), tf.nn.avg_pool2d(a, 3, 2, p), tf.nn.avg_pool2d(a, [2, 3], 1, p)),
        x(2, 7, 8, 3),
    )
case("Conv2D_explicit", lambda a, w: tf.nn.conv2d(a, w, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), x(2, 9, 8, 3), x(3, 2, 3, 4))
case("Conv2D_groups", lambda a, w: tf.nn.conv2d(a, w, 1, "SAME"), x(2, 5, 6, 4), x(3, 3, 2, 6))
case("Conv1D", lambda a, w: tf.nn.conv1d(a, w, 2, "SAME"), x(2, 9, 3), x(3, 3, 4))
case(
    "BatchNorm",
    lambda a, b, c, d, v: raw.FusedBatchNormV3(x=a, scale=b, offset=c, mean=d, variance=v, epsilon=1e-3, is_training=False)[0],
    x(2, 3, 4, 5),
    x(5),
    x(5),
    x(5),
    x(5, low=0.5),
)
case(
    "BatchNorm_training",
    lambda a, b, c: raw.FusedBatchNormV3(x=a, scale=b, offset=c, mean=[], variance=[], epsilon=1e-3)[:3],
    x(2, 3, 4, 5),
    x(5),
    x(5),
)
case("LRN", lambda a: tf.nn.lrn(a, 2, 1.0, 0.1, 0.75), x(2, 3, 4, 9))
for half in (False, True):
    for size in ([6, 9], [5, 3]):
        case(
            f"Resize_{half}{size}",
            lambda a, h=half, s=size: (
                raw.ResizeBilinear(images=a, size=s, half_pixel_centers=h),
                raw.ResizeNearestNeighbor(images=a, size=s, half_pixel_centers=h),
            ),
            x(2, 3, 4, 2),
        )
case(
    "Resize_corners",
    lambda a: (
        raw.ResizeBilinear(images=a, size=[6, 9], align_corners=True),
        raw.ResizeNearestNeighbor(images=a, size=[6, 9], align_corners=True),
    ),
    x(2, 3, 4, 2),
)


def gradients(function, *args):
    with tf.GradientTape() as tape:
        tape.watch(args)
        y = tf.reduce_sum(tf.sin(function(*args)))
    return tuple(tape.gradient(y, args))


case("Conv_gradients", lambda a, w: gradients(lambda a, w: tf.nn.conv2d(a, w, 2, "SAME"), a, w), x(2, 7, 6, 3), x(3, 3, 3, 4))
case(
    "Depthwise_gradients",
    lambda a, w: gradients(lambda a, w: tf.nn.depthwise_conv2d(a, w, [1, 2, 2, 1], "SAME"), a, w),
    x(2, 7, 6, 3),
    x(3, 3, 3, 2),
)
case(
    "Pool_gradients", lambda a: gradients(lambda a: tf.nn.max_pool2d(a, 2, 2, "SAME") + tf.nn.avg_pool2d(a, 2, 2, "SAME"), a), x(2, 7, 6, 3)
)
case(
    "Norm_gradients",
    lambda a, b, c: gradients(lambda a, b, c: raw.FusedBatchNormV3(x=a, scale=b, offset=c, mean=[], variance=[], epsilon=1e-3)[0], a, b, c),
    x(2, 3, 4, 5),
    x(5),
    x(5),
)
case("Dense_gradients", lambda a, w, b: gradients(lambda a, w, b: tf.nn.softmax(tf.nn.relu(a @ w + b)), a, w, b), x(3, 4), x(4, 5), x(5))

# ---- control
case("Cond", lambda a: tf.cond(tf.reduce_sum(a) > 0, lambda: a * 2, lambda: a - 1), x(3))
case("Cond_other", lambda a: tf.cond(tf.reduce_sum(a) > 100, lambda: a * 2, lambda: a - 1), x(3))
case("While", lambda a: tf.while_loop(lambda k, v: k < 12, lambda k, v: (k + 1, v * 0.9 + 0.1), (0, a)), x(3))
case("While_data", lambda a: tf.while_loop(lambda v: tf.reduce_sum(v) < 50, lambda v: (v * 1.5,), (a,)), x(3, low=1))
case("Switch_case", lambda a: tf.switch_case(tf.cast(a[0], tf.int32), [lambda: a, lambda: a * 2, lambda: a * 3]), np.array([1, 5], F))
case("Map", lambda a: tf.map_fn(lambda r: tf.reduce_sum(r) * r, a), x(11, 3))
case("Scan", lambda a: tf.scan(lambda c, r: c * 0.5 + r, a), x(11, 3))


def growing(a):
    """Running largest rows, in an array that grows."""

    def turn(k, rows):
        return k + 1, rows.write(k, tf.reduce_max(a[: k + 1], 0))

    rows = tf.TensorArray(tf.float32, 0, True)
    return tf.while_loop(lambda k, rows: k < tf.shape(a)[0], turn, [0, rows])[1].stack()


# ---- images, sound, sparse tensors, quantised floats
case("Crop_and_resize", lambda a, b: tf.image.crop_and_resize(a, b, [0, 1, 1], (4, 3)), x(2, 7, 6, 3), x(3, 4, low=-0.1, high=1.1))
case(
    "Boxes",
    lambda b, s: tf.image.crop_and_resize(
        tf.reshape(tf.range(75.0), [1, 5, 5, 3]),
        tf.gather(b, tf.image.non_max_suppression(b, s, 4, 0.4, 0.1)),
        tf.zeros_like(tf.image.non_max_suppression(b, s, 4, 0.4, 0.1)),
        (2, 2),
    ),
    x(9, 4, low=0, high=1),
    R.permutation(9).astype(F) / 9,
)
case(
    "Soft_boxes",
    lambda b, s: tf.image.non_max_suppression_with_scores(b, s, 5, 0.9, 0.1, 0.5),
    x(9, 4, low=0, high=1),
    R.permutation(9).astype(F) / 9,
)
case(
    "Boxes_of_classes",
    lambda b, s: tuple(tf.image.combined_non_max_suppression(b[:, :, None], s, 3, 5, 0.5, 0.1)),
    x(2, 8, 4, low=0, high=1),
    R.permutation(48).astype(F).reshape(2, 8, 3) / 48,
)
case(
    "Colours",
    lambda a, by: tf.image.adjust_hue(tf.image.adjust_saturation(tf.image.adjust_contrast(a, 1.3), 0.7), by),
    x(2, 5, 4, 3, low=0, high=1),
    np.float32(0.2),
)
case("Hsv", lambda a: (tf.image.rgb_to_hsv(a), tf.image.hsv_to_rgb(tf.image.rgb_to_hsv(a))), x(5, 4, 3, low=0, high=1))
case("Patches", lambda a: tf.image.extract_patches(a, [1, 3, 2, 1], [1, 2, 2, 1], [1, 1, 2, 1], "SAME"), x(2, 7, 6, 3))
case("MaxPool_places", lambda a: tuple(tf.nn.max_pool_with_argmax(a, 2, 2, "SAME", include_batch_in_index=True)), x(2, 5, 4, 3))
case("Dilation", lambda a, w: tf.nn.dilation2d(a, w, [1, 2, 1, 1], "SAME", "NHWC", [1, 1, 2, 1]), x(2, 7, 6, 3), x(3, 2, 3))
case("Fake_quant", lambda a: tf.quantization.fake_quant_with_min_max_vars(a, -1.1, 1.7, 4, True), x(5, 7))
case(
    "Fake_quant_channels",
    lambda a, p, q: tf.quantization.fake_quant_with_min_max_vars_per_channel(a, p, q),
    x(5, 3),
    x(3, high=-1),
    x(3, low=1),
)
case("Quantize_dequantize", lambda a: tf.quantization.quantize_and_dequantize_v2(a, -1.0, 1.0, range_given=False), x(5, 3))
case("Spectrum", lambda a: tf.abs(tf.signal.stft(a, 24, 8, fft_length=32)), x(2, 100))
case("Signal_back", lambda a: tf.signal.inverse_stft(tf.signal.stft(a, 16, 4) * tf.complex(0.5, 0.25), 16, 4), x(2, 64))
case(
    "Cepstrum",
    lambda a: tf.signal.mfccs_from_log_mel_spectrograms(
        tf.math.log(tf.abs(tf.signal.stft(a, 40, 20)) @ tf.signal.linear_to_mel_weight_matrix(12, 33, 800, 10.0, 380.0) + 0.01)
    ),
    x(2, 200),
)
case(
    "Fourier_product",
    lambda a: tf.math.real(tf.signal.ifft(tf.signal.fft(tf.complex(a, -a)) * tf.math.conj(tf.signal.fft(tf.complex(a, a))))),
    x(3, 12),
)
case(
    "Mfcc",
    lambda a: raw.Mfcc(
        spectrogram=raw.AudioSpectrogram(input=a, window_size=50, stride=30, magnitude_squared=True),
        sample_rate=1000,
        upper_frequency_limit=480.0,
    ),
    x(200, 2),
)
case(
    "Sorted_segments",
    lambda a, k: (tf.math.segment_mean(a, k), tf.math.segment_max(a, k), tf.math.segment_prod(a, k)),
    x(6, 3),
    np.array([0, 0, 1, 3, 3, 3], np.int32),
)
case(
    "Sparse_lookup",
    lambda table, k, w: tf.nn.safe_embedding_lookup_sparse(
        table,
        tf.SparseTensor([[0, 0], [0, 3], [2, 1], [2, 2]], k, [4, 5]),
        tf.SparseTensor([[0, 0], [0, 3], [2, 1], [2, 2]], w, [4, 5]),
        "sqrtn",
    ),
    x(9, 3),
    i(4, high=9, dtype=np.int64),
    x(4, low=0.5),
)
case(
    "Sparse_product",
    lambda v, b: (
        tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 1], [2, 0], [2, 3]], v, [3, 4]), b),
        tf.sparse.to_dense(tf.SparseTensor([[0, 1], [2, 0], [2, 3]], v, [3, 4]), 7.0),
    ),
    x(3),
    x(4, 2),
)
case(
    "Partition",
    lambda a, k: tf.dynamic_stitch([[0, 2], [1]], [t[:n] for t, n in zip(tf.dynamic_partition(a, k, 2), (2, 1), strict=True)]),
    x(4, 2),
    np.array([0, 1, 0, 1], np.int32),
)
case(
    "Bins",
    lambda a, k: (
        tf.math.bincount(k, minlength=6, maxlength=6),
        raw.Bucketize(input=a, boundaries=[-1.0, 0.0, 1.0]),
        tf.searchsorted(tf.sort(a), a[:2] + 0.1),
        tf.histogram_fixed_width(a, [-2.0, 2.0], 4),
        tf.math.in_top_k(k[:1], tf.reshape(a, [1, -1]), 2),
    ),
    x(7),
    i(9),
)
case("Ragged", lambda a: tf.RaggedTensor.from_row_lengths(a, [2, 0, 3]).to_tensor(-1.0, shape=[None, 2]), x(5))
case(
    "Factors",
    lambda a: (tf.linalg.eigvalsh(a + tf.linalg.matrix_transpose(a)), tf.linalg.svd(a, compute_uv=False), tf.linalg.slogdet(a)),
    x(2, 4, 4),
)
case("Projections", lambda a: (tf.linalg.qr(a)[0] @ tf.linalg.qr(a)[1], tf.linalg.pinv(a)), x(2, 5, 3))
case("Log_cumulated", lambda a: tf.math.cumulative_logsumexp(a, 1, exclusive=True), x(2, 5))
case(
    "Whole_sums",
    lambda a, b: raw.BatchMatMulV3(x=a, y=b, Tout=tf.int32),
    i(3, 40, low=-127, high=127, dtype=np.int8),
    i(40, 2, low=-127, high=127, dtype=np.int8),
)
case(
    "Ctc",
    lambda a: tf.nn.ctc_loss(tf.constant([[1, 2, 3], [4, 1, 0]]), a, tf.constant([3, 2]), tf.constant([6, 5]), False, blank_index=0),
    x(2, 6, 5),
)
case("Growing_array", lambda a: growing(a), x(5, 3))


# ---- arrays that grow by one in each turn, their sizes and derivatives; elements at computed places
def grown(a):
    """Running sums of rows, and the sizes that the array had before each."""

    def turn(k, total, rows, sizes):
        total = tf.tanh(total + a[k])
        more = rows.write(k, total)
        return k + 1, total, more, sizes + rows.size() * more.size()

    rows = tf.TensorArray(tf.float32, 0, True, element_shape=[3])
    _, _, rows, sizes = tf.while_loop(lambda k, *_: k < tf.shape(a)[0], turn, [0, tf.zeros([3]), rows, 0])
    return rows.stack(), sizes


def grown_further(a):
    """Two loops that fill one array, which begins with fewer places than it gets; and the derivative."""
    n = tf.shape(a)[0]
    with tf.GradientTape() as tape:
        tape.watch(a)
        rows = tf.TensorArray(tf.float32, 2, True, element_shape=[3])
        for k, by in ((0, 2.0), (n, 3.0)):
            _, rows = tf.while_loop(
                lambda i, _: i < n, lambda i, rows, k=k, by=by: (i + 1, rows.write(k + i, tf.sin(a[i] * by))), [0, rows]
            )
        y = tf.reduce_sum(rows.stack() ** 2)
    return y, tape.gradient(y, a)


def grown_derivative(a):
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = tf.reduce_sum(grown(a)[0] ** 2)
    return tape.gradient(y, a)


case("Grown_array", grown, x(11, 3))
case("Grown_further", grown_further, x(4, 3))
case("Grown_derivative", grown_derivative, x(11, 3))
case(
    "Places",
    lambda a, k: (a[k], a[k, k - 1], a[:, k], a[..., k, :], a[k, ..., None], a[tf.argmax(a[:, 0, 0])]),
    x(4, 3, 5),
    np.array(1, np.int32),
)


def turned(*fill_modes, version="V3", interpolation="BILINEAR", **more):
    """A function of images and transforms with a result for each fill mode, of images of the same lengths."""
    op = getattr(raw, f"ImageProjectiveTransform{version}")

    def function(a, b):
        kinds = {"images": a, "transforms": b, "output_shape": tf.shape(a)[1:3], "interpolation": interpolation}
        return [op(**kinds, fill_mode=mode, **more) for mode in fill_modes]

    return function


ROTATION = np.array([[0.8, -0.6, 1.3, 0.6, 0.8, -2.2, 0.01, -0.02], [0.3, 1.1, -4.1, -1.2, 0.4, 3.3, 0, 0]], F)
EVERY_FILL = "REFLECT", "WRAP", "CONSTANT", "NEAREST"
case("Projective", turned(*EVERY_FILL, fill_value=0.7), x(2, 5, 4, 3), ROTATION)
case("Projective_nearest", turned(*EVERY_FILL, interpolation="NEAREST", fill_value=9.0), i(2, 5, 4, 1, high=200, dtype=np.uint8), ROTATION)
case("Projective_one", turned("CONSTANT", "REFLECT", version="V2"), x(3, 1, 6, 1), ROTATION[:1])
case("Projective_derivative", lambda a, b: gradients(turned("CONSTANT", fill_value=0.0), a, b)[0], x(2, 5, 4, 3), ROTATION)


def record_ops(path):
    saved = {}
    for name, (function, inputs) in CASES.items():
        traced = tf.function(function, autograph=False)
        for opened in (False, True):
            specs = [tf.TensorSpec([None] * a.ndim if opened else a.shape, a.dtype) for a in inputs]
            try:
                concrete = traced.get_concrete_function(*specs)
            except Exception as error:
                if not opened:
                    raise
                print("not traced with open lengths:", name, type(error).__name__)
                continue
            graph = concrete.graph.as_graph_def()
            key = f"{name}{'.open' if opened else ''}"
            saved[f"{key}|graph"] = np.frombuffer(graph.SerializeToString(), np.uint8)
            saved[f"{key}|names"] = np.array([*[t.name for t in concrete.inputs], "->", *[t.name for t in concrete.outputs]])
        given = traced(*inputs)
        given = tf.nest.flatten(given)
        for k, a in enumerate(inputs):
            saved[f"{name}|in{k}"] = a
        for k, a in enumerate(given):
            saved[f"{name}|out{k}"] = a.numpy()
    np.savez_compressed(os.path.join(path, "ops.npz"), **saved)


def record_models(path):
    import keras
    from keras import layers as L

    keras.utils.set_random_seed(3)
    models = {
        "mlp": keras.Sequential([keras.Input((6,)), L.Dense(8, "relu"), L.LayerNormalization(), L.Dense(3, "softmax")]),
        "cnn": keras.Sequential(
            [keras.Input((12, 10, 3)), L.Conv2D(4, 3, 2, "same"), L.BatchNormalization(), L.ReLU(), L.DepthwiseConv2D(3), L.MaxPooling2D(2)]
            + [L.Conv2DTranspose(5, 3, 2), L.GlobalAveragePooling2D(), L.Dense(4)]
        ),
        "lstm": keras.Sequential([keras.Input((9, 4)), L.LSTM(5, return_sequences=True), L.LSTM(3)]),
        "gru": keras.Sequential([keras.Input((9, 4)), L.Bidirectional(L.GRU(3)), L.Dense(2)]),
        "embedding": keras.Sequential(
            [keras.Input((7,), dtype="int32"), L.Embedding(11, 4), L.Conv1D(3, 2, activation="gelu"), L.Flatten()]
        ),
        "convlstm": keras.Sequential([keras.Input((4, 6, 5, 2)), L.ConvLSTM2D(3, 2)]),
    }
    inputs = keras.Input((5, 8))
    a = L.MultiHeadAttention(2, 4)(inputs, inputs)
    models["attention"] = keras.Model(inputs, L.LayerNormalization()(a + inputs))
    for name, model in models.items():
        folder = os.path.join(path, name)
        shape = [3, *model.inputs[0].shape[1:]]
        data = i(*shape, high=11) if name == "embedding" else x(*shape)
        model.export(folder, verbose=False)
        np.savez_compressed(os.path.join(path, f"{name}.npz"), x=data, y=model(data).numpy(), two=model(data[:2]).numpy())

    class Counter(tf.Module):
        def __init__(self):
            self.total = tf.Variable(tf.zeros([3]), name="total")
            self.w = tf.Variable(tf.constant([[1.0, 2, 3]] * 2), name="w")
            self.opt_m = tf.Variable(tf.zeros([2, 3]))
            self.opt_v = tf.Variable(tf.zeros([2, 3]))
            self.step = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
        def add(self, a):
            self.total.assign_add(tf.reduce_sum(a @ self.w, 0))
            return {"total": self.total.read_value()}

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([None, 3], tf.float32)])
        def train(self, a, b):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.tanh(a @ self.w) - b) ** 2)
            g = tape.gradient(loss, self.w)
            self.step.assign_add(1.0)
            raw.ResourceApplyAdam(
                var=self.w.handle,
                m=self.opt_m.handle,
                v=self.opt_v.handle,
                beta1_power=0.9**self.step,
                beta2_power=0.999**self.step,
                lr=0.05,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                grad=g,
            )
            return {"loss": loss}

    counter = Counter()
    tf.saved_model.save(counter, os.path.join(path, "counter"), signatures={"add": counter.add, "train": counter.train})
    a, b = x(5, 2), x(5, 3, low=-0.9, high=0.9)
    totals = [counter.add(tf.constant(a))["total"].numpy() for _ in range(3)]
    losses = [counter.train(tf.constant(a[: 5 - k % 2]), tf.constant(b[: 5 - k % 2]))["loss"].numpy() for k in range(20)]
    np.savez_compressed(os.path.join(path, "counter.npz"), a=a, b=b, totals=totals, losses=losses, w=counter.w.numpy())

    tf.compat.v1.disable_eager_execution()
    v1 = tf.compat.v1
    with v1.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        a = v1.placeholder(tf.float32, [None, 2], name="x")
        w = v1.get_variable("w", [2, 3], use_resource=False, initializer=v1.random_normal_initializer(seed=1))
        v = v1.get_variable(
            "v", [40, 3], use_resource=True, initializer=v1.random_normal_initializer(seed=2), partitioner=v1.fixed_size_partitioner(4)
        )
        y = tf.nn.relu(a @ w, name="hidden") @ tf.transpose(tf.convert_to_tensor(v))
        y = tf.identity(y, name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, os.path.join(path, "old", "model"))
        data = x(4, 2)
        hidden, found = session.run(["hidden:0", "y:0"], {"x:0": data})
        np.savez_compressed(os.path.join(path, "old.npz"), x=data, hidden=hidden, y=found, w=session.run(w))


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    record_ops(sys.argv[1])
    record_models(sys.argv[1])
