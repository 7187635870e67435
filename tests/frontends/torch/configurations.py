"""Random small configurations of models of transformers: `python tests/frontends/torch/configurations.py COUNT SEED [model ...]`.

Each is compiled with `fullgraph` and `fallback="error"`, exported, and trained, with fixed and with open lengths, and compared with eager:
results within 1e-4, losses of 20 steps of AdamW within 1e-4; one graph for each pass, and no op in torch. The lines printed are what
failed; the exit code is 1 where anything did.
"""

import copy
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

import ngraph as ng
from ngraph.frontends.torch import backend, report, reset

ERROR = {"fallback": "error"}
STEPS = 20
TOLERANCE = 1e-4


class Case(NamedTuple):
    """A drawn model: how its inputs are made of (batch, length), with labels or without, and the dims that may be open in each input."""

    model: Any
    inputs: Callable[..., dict[str, torch.Tensor]]
    shapes: list[tuple[int, int]]
    open_dims: dict[str, dict[int, str]]


TEXT = {"input_ids": {0: "batch", 1: "length"}, "attention_mask": {0: "batch", 1: "length"}}
IMAGE = {"pixel_values": {0: "batch"}}


def lengths(r: random.Random, most: int = 13) -> list[tuple[int, int]]:
    """Three different pairs of a batch and a length."""
    found: list[tuple[int, int]] = []
    while len(found) < 3:
        pair = r.randint(2, 5), r.randint(3, most)
        if pair not in found:
            found.append(pair)
    return found


def text(model: Any, labels: Callable[..., torch.Tensor], masked: bool, side: str = "right") -> Callable[..., dict[str, torch.Tensor]]:
    def inputs(batch: int, length: int, train: bool = False) -> dict[str, torch.Tensor]:
        ids = torch.randint(3, model.config.vocab_size, (batch, length))
        given = {"input_ids": ids, "attention_mask": torch.ones(batch, length, dtype=torch.long)}
        if masked:
            for row in range(1, batch):
                given["attention_mask"][row, slice(length - row % length, None) if side == "right" else slice(0, row % length)] = 0
        return {**given, "labels": labels(ids)} if train else given

    return inputs


def classes(ids: torch.Tensor) -> torch.Tensor:
    return torch.arange(ids.shape[0]) % 3


def words(ids: torch.Tensor) -> torch.Tensor:
    return torch.where(ids % 5 == 0, -100, ids)


def reader(kind: str, config: Any, r: random.Random) -> Case:
    """A model that fills gaps in texts, or one that chooses a class for each."""
    whole = r.random() < 0.5
    model = getattr(transformers, f"{kind}For{'MaskedLM' if whole else 'SequenceClassification'}")(config)
    return Case(model, text(model, words if whole else classes, r.random() < 0.7), lengths(r), TEXT)


def bert(r: random.Random) -> Case:
    heads = r.choice([1, 2, 3, 5])
    config = transformers.BertConfig(
        vocab_size=r.randint(20, 60),
        hidden_size=heads * r.choice([3, 4, 5, 8]),
        num_hidden_layers=r.randint(1, 3),
        num_attention_heads=heads,
        intermediate_size=r.randint(5, 37),
        hidden_act=r.choice(["gelu", "relu", "silu", "gelu_new", "tanh", "gelu_pytorch_tanh"]),
        max_position_embeddings=r.choice([16, 33]),
        type_vocab_size=r.choice([1, 2]),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation=r.choice(["sdpa", "eager"]),
        tie_word_embeddings=r.random() < 0.5,
        num_labels=3,
        problem_type="single_label_classification",
    )
    return reader("Bert", config, r)


def distilbert(r: random.Random) -> Case:
    heads = r.choice([1, 2, 3, 5])
    config = transformers.DistilBertConfig(
        vocab_size=r.randint(20, 60),
        dim=heads * r.choice([3, 4, 5, 8]),
        n_layers=r.randint(1, 3),
        n_heads=heads,
        hidden_dim=r.randint(5, 37),
        activation=r.choice(["gelu", "relu", "silu"]),
        max_position_embeddings=r.choice([16, 33]),
        sinusoidal_pos_embds=r.random() < 0.5,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        attn_implementation=r.choice(["sdpa", "eager"]),
        tie_word_embeddings=r.random() < 0.5,
        num_labels=3,
        problem_type="single_label_classification",
    )
    return reader("DistilBert", config, r)


def gpt2(r: random.Random) -> Case:
    heads = r.choice([1, 2, 3, 5])
    config = transformers.GPT2Config(
        vocab_size=r.randint(20, 60),
        n_embd=heads * r.choice([3, 4, 5, 8]),
        n_layer=r.randint(1, 3),
        n_head=heads,
        n_inner=r.choice([None, r.randint(5, 37)]),
        n_positions=r.choice([16, 33]),
        activation_function=r.choice(["gelu_new", "gelu", "relu", "silu", "tanh"]),
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        scale_attn_weights=r.random() < 0.8,
        scale_attn_by_inverse_layer_idx=r.random() < 0.3,
        reorder_and_upcast_attn=r.random() < 0.2,
        attn_implementation=r.choice(["sdpa", "eager"]),
        tie_word_embeddings=r.random() < 0.7,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # else it logs that it takes this one, and Dynamo takes no logging
    return Case(model, text(model, words, r.random() < 0.7, r.choice(["left", "right"])), lengths(r), TEXT)


def mamba(r: random.Random) -> Case:
    config = transformers.MambaConfig(
        vocab_size=r.randint(20, 60),
        hidden_size=r.choice([5, 8, 12, 17]),
        state_size=r.choice([2, 3, 4, 8]),
        num_hidden_layers=r.randint(1, 2),
        expand=r.choice([1, 2, 3]),
        conv_kernel=r.choice([2, 3, 4]),
        use_bias=r.random() < 0.5,
        use_conv_bias=r.random() < 0.7,
        hidden_act=r.choice(["silu", "gelu", "relu"]),
        residual_in_fp32=r.random() < 0.5,
        time_step_rank=r.choice(["auto", 1, 2, 3]),
        use_associative_scan=r.random() < 0.5,
        tie_word_embeddings=r.random() < 0.7,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.MambaForCausalLM(config)
    open_dims = {name: {0: "batch"} for name in TEXT} if not config.use_associative_scan else TEXT
    pairs = lengths(r, 9)
    if open_dims is not TEXT:  # a loop of Python's over the places: each length is a program of its own
        pairs = [(batch, pairs[0][1]) for batch in (2, 3, 5)]
    return Case(model, text(model, words, r.random() < 0.5), pairs, open_dims)


def image(model: Any, height: int, width: int) -> Callable[..., dict[str, torch.Tensor]]:
    def inputs(batch: int, length: int, train: bool = False) -> dict[str, torch.Tensor]:
        given = {"pixel_values": torch.randn(batch, model.config.num_channels, height, width)}
        return {**given, "labels": torch.arange(batch) % 3} if train else given

    return inputs


def resnet(r: random.Random) -> Case:
    kind, stages = r.choice(["basic", "bottleneck"]), r.randint(1, 3)
    config = transformers.ResNetConfig(
        num_channels=r.choice([1, 3]),
        embedding_size=r.choice([4, 5, 8]),
        hidden_sizes=[4 * r.choice([1, 2, 3, 5]) for _ in range(stages)],
        depths=[r.randint(1, 2) for _ in range(stages)],
        layer_type=kind,
        hidden_act=r.choice(["relu", "gelu", "silu"]),
        downsample_in_first_stage=r.random() < 0.5,
        downsample_in_bottleneck=r.random() < 0.5,
        num_labels=3,
        problem_type="single_label_classification",
    )
    model = transformers.ResNetForImageClassification(config)
    return Case(model, image(model, r.choice([32, 33, 40]), r.choice([32, 37])), [(3, 0), (5, 0), (2, 0)], IMAGE)


def convnext(r: random.Random) -> Case:
    stages = r.randint(1, 3)
    config = transformers.ConvNextConfig(
        num_channels=r.choice([1, 3]),
        patch_size=r.choice([2, 4]),
        num_stages=stages,
        hidden_sizes=[r.choice([4, 5, 6, 8, 11]) for _ in range(stages)],
        depths=[r.randint(1, 2) for _ in range(stages)],
        hidden_act=r.choice(["gelu", "relu", "silu"]),
        layer_scale_init_value=r.choice([0.0, 1e-6, 0.5]),
        num_labels=3,
        problem_type="single_label_classification",
    )
    model = transformers.ConvNextForImageClassification(config)
    return Case(model, image(model, r.choice([32, 33, 40]), r.choice([32, 37])), [(3, 0), (5, 0), (2, 0)], IMAGE)


def whisper(r: random.Random) -> Case:
    heads, places = r.choice([1, 2, 3]), r.choice([8, 11, 15])
    config = transformers.WhisperConfig(
        vocab_size=r.randint(20, 60),
        num_mel_bins=r.choice([5, 8, 13]),
        d_model=heads * r.choice([4, 6, 8]),  # its positions are sines and cosines: even
        encoder_layers=r.randint(1, 2),
        decoder_layers=r.randint(1, 2),
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=r.randint(5, 37),
        decoder_ffn_dim=r.randint(5, 37),
        activation_function=r.choice(["gelu", "relu", "silu"]),
        max_source_positions=places,
        max_target_positions=r.choice([16, 21]),
        scale_embedding=r.random() < 0.5,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        attn_implementation=r.choice(["sdpa", "eager"]),
        tie_word_embeddings=r.random() < 0.7,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config)

    def inputs(batch: int, length: int, train: bool = False) -> dict[str, torch.Tensor]:
        given = {"input_features": torch.randn(batch, config.num_mel_bins, 2 * places)}
        ids = torch.randint(3, config.vocab_size, (batch, length))
        return {**given, "labels": words(ids)} if train else {**given, "decoder_input_ids": ids}

    dims = {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "length"}}
    return Case(model, inputs, lengths(r), dims)


def small(kind: str, r: random.Random, **more: Any) -> Any:
    """The configuration of a decoder, with few heads of keys, and lengths that are drawn."""
    few = r.choice([1, 2])
    heads, size = few * r.choice([1, 2, 3]), 2 * r.choice([2, 3, 4])  # rotations are of halves: even
    return getattr(transformers, kind)(
        vocab_size=r.randint(20, 60),
        hidden_size=heads * size,
        head_dim=size,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=few,
        intermediate_size=r.randint(5, 37),
        max_position_embeddings=r.choice([16, 33]),
        tie_word_embeddings=r.random() < 0.5,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **{"attn_implementation": r.choice(["sdpa", "eager"]), **more},
    )


def decoder(kind: str, config: Any, r: random.Random) -> Case:
    model = getattr(transformers, kind)(config)
    model.loss_type = "ForCausalLM"
    return Case(model, text(model, words, r.random() < 0.7), lengths(r), TEXT)


def llama(r: random.Random) -> Case:
    config = small("LlamaConfig", r, hidden_act=r.choice(["silu", "gelu"]), attention_bias=r.random() < 0.5, mlp_bias=r.random() < 0.5)
    return decoder("LlamaForCausalLM", config, r)


def gemma2(r: random.Random) -> Case:
    config = small(
        "Gemma2Config", r, attn_implementation="eager", sliding_window=r.choice([2, 4, 32]), query_pre_attn_scalar=r.choice([4, 7])
    )
    return decoder("Gemma2ForCausalLM", config, r)


def gemma3(r: random.Random) -> Case:
    kinds = r.choice([["sliding_attention", "full_attention"], ["sliding_attention"] * 2])
    return decoder("Gemma3ForCausalLM", small("Gemma3TextConfig", r, sliding_window=r.choice([2, 4, 32]), layer_types=kinds), r)


def mixtral(r: random.Random) -> Case:
    experts = r.choice([2, 3, 4])
    config = small("MixtralConfig", r, num_local_experts=experts, num_experts_per_tok=r.randint(1, experts))
    config._experts_implementation = "batched_mm"  # a loop over the experts that are hit is no single graph
    return decoder("MixtralForCausalLM", config, r)


def qwen_moe(r: random.Random) -> Case:
    experts = r.choice([2, 3, 4])
    some = {"num_experts": experts, "num_experts_per_tok": r.randint(1, experts), "moe_intermediate_size": r.randint(5, 19)}
    config = small("Qwen3MoeConfig", r, norm_topk_prob=r.random() < 0.5, **some)
    config._experts_implementation = "batched_mm"
    return decoder("Qwen3MoeForCausalLM", config, r)


def encoder(r: random.Random) -> dict[str, Any]:
    """What the configurations of encoders have in common."""
    heads = r.choice([1, 2, 3])
    return {
        "hidden_size": heads * r.choice([3, 4, 8]),
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "intermediate_size": r.randint(5, 37),
        "hidden_act": r.choice(["gelu", "relu", "gelu_new"]),
        "attn_implementation": r.choice(["sdpa", "eager"]),
    }


WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CLASSES = {"num_labels": 3, "problem_type": "single_label_classification"}


def roberta(r: random.Random) -> Case:
    config = transformers.RobertaConfig(
        vocab_size=r.randint(20, 60),
        max_position_embeddings=r.choice([18, 35]),
        type_vocab_size=1,
        **encoder(r),
        **WITHOUT_DROPOUT,
        **CLASSES,
    )
    return reader("Roberta", config, r)


def albert(r: random.Random) -> Case:
    config = transformers.AlbertConfig(
        vocab_size=r.randint(20, 60),
        embedding_size=r.choice([4, 7]),
        max_position_embeddings=r.choice([16, 33]),
        num_hidden_groups=r.choice([1, 2]),
        **encoder(r),
        **WITHOUT_DROPOUT,
        **CLASSES,
        classifier_dropout_prob=0.0,
    )
    return reader("Albert", config, r)


def t5(r: random.Random) -> Case:
    heads = r.choice([1, 2, 3])
    config = transformers.T5Config(
        vocab_size=r.randint(20, 60),
        d_model=r.choice([6, 8, 15]),
        d_kv=r.choice([3, 4, 8]),
        d_ff=r.randint(5, 37),
        num_layers=2,
        num_heads=heads,
        relative_attention_num_buckets=r.choice([4, 8, 32]),
        relative_attention_max_distance=r.choice([9, 16, 128]),
        feed_forward_proj=r.choice(["relu", "gated-gelu"]),
        tie_word_embeddings=r.random() < 0.5,
        dropout_rate=0.0,
        use_cache=False,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config)
    given = text(model, words, r.random() < 0.7)

    def inputs(batch: int, length: int, train: bool = False) -> dict[str, torch.Tensor]:
        more = {} if train else {"decoder_input_ids": torch.randint(3, config.vocab_size, (batch, length))}
        return {**given(batch, length, train), **more}

    return Case(model, inputs, lengths(r), {**TEXT, "decoder_input_ids": TEXT["input_ids"]})


def vit(r: random.Random) -> Case:
    patch = r.choice([4, 5, 8])
    config = transformers.ViTConfig(
        image_size=patch * r.choice([2, 3]), patch_size=patch, num_channels=r.choice([1, 3]), **encoder(r), **WITHOUT_DROPOUT, **CLASSES
    )
    model = transformers.ViTForImageClassification(config)
    return Case(model, image(model, config.image_size, config.image_size), [(3, 0), (5, 0), (2, 0)], IMAGE)


def segformer(r: random.Random) -> Case:
    heads = r.choice([1, 2])
    config = transformers.SegformerConfig(
        num_channels=r.choice([1, 3]),
        num_encoder_blocks=2,
        depths=[1, r.randint(1, 2)],
        sr_ratios=[r.choice([1, 2, 4]), 1],
        hidden_sizes=[heads * r.choice([3, 4]), heads * r.choice([4, 5])],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[heads, heads],
        mlp_ratios=[2, 3],
        decoder_hidden_size=r.choice([6, 9]),
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
        hidden_act=r.choice(["gelu", "relu"]),
        num_labels=3,
        **WITHOUT_DROPOUT,
    )
    model = transformers.SegformerForSemanticSegmentation(config)
    height, width = r.choice([32, 33, 40]), r.choice([32, 37])
    given = image(model, height, width)

    def inputs(batch: int, length: int, train: bool = False) -> dict[str, torch.Tensor]:
        more = {"labels": torch.randint(0, 3, (batch, height, width))} if train else {}
        return {**given(batch, length), **more}

    return Case(model, inputs, [(3, 0), (5, 0), (2, 0)], IMAGE)


def clip(r: random.Random) -> Case:
    patch, words_of, images_of = r.choice([4, 5, 8]), encoder(r), encoder(r)
    ways = words_of.pop("attn_implementation")
    images_of.pop("attn_implementation")
    config = transformers.CLIPConfig(
        text_config={
            **words_of,
            "vocab_size": r.randint(20, 60),
            "max_position_embeddings": 16,
            "eos_token_id": 2,
            "bos_token_id": 1,
            "pad_token_id": 0,
        },
        vision_config={**images_of, "image_size": 2 * patch, "patch_size": patch, "num_channels": 3},
        projection_dim=r.choice([5, 8]),
        attn_implementation=ways,
    )
    model = transformers.CLIPModel(config)

    def inputs(batch: int, length: int, train: bool = False) -> dict[str, torch.Tensor]:
        ids = torch.randint(3, config.text_config.vocab_size, (batch, length))
        ids[:, -1] = 2
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": torch.randn(batch, 3, 2 * patch, 2 * patch)}
        return {**given, "return_loss": True} if train else given

    return Case(model, inputs, lengths(r), {**TEXT, **IMAGE})


def wav2vec2(r: random.Random) -> Case:
    config = transformers.Wav2Vec2Config(
        vocab_size=r.randint(12, 30),
        conv_dim=[4, 5],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        conv_bias=r.random() < 0.5,
        feat_extract_norm=r.choice(["group", "layer"]),
        do_stable_layer_norm=r.random() < 0.5,
        num_conv_pos_embeddings=r.choice([3, 4]),
        num_conv_pos_embedding_groups=1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        mask_time_prob=0.0,
        apply_spec_augment=False,
        classifier_proj_size=7,
        **encoder(r),
        **CLASSES,
    )
    model = transformers.Wav2Vec2ForSequenceClassification(config)

    def inputs(batch: int, length: int, train: bool = False) -> dict[str, torch.Tensor]:
        given = {"input_values": torch.randn(batch, 40 + 13 * length)}
        return {**given, "labels": torch.arange(batch) % 3} if train else given

    return Case(model, inputs, lengths(r), {"input_values": {0: "batch", 1: "length"}})


TEXTS = (bert, gpt2, distilbert, mamba, llama, gemma2, gemma3, mixtral, qwen_moe, roberta, albert, t5)
OTHERS = (resnet, convnext, vit, segformer, whisper, wav2vec2, clip)
MODELS = {f.__name__: f for f in (*TEXTS, *OTHERS)}


def drawn(name: str, seed: int) -> Case:
    """Returns the model of a seed, with weights that are the same each time."""
    torch.manual_seed(seed)
    return MODELS[name](random.Random(f"{name} {seed}"))


def main_output(found: Any) -> Any:
    return found["logits" if "logits" in found else "logits_per_image"]


def begin(seed: int) -> None:
    torch._dynamo.reset()
    reset()
    torch.manual_seed(seed)


def wholly_ours(graphs: int) -> None:
    """Checks that nothing ran in torch, that there was no break, and that no more graphs than these were compiled."""
    seen = report()
    assert not seen.in_torch, f"in torch: {seen.in_torch}"
    assert not seen.breaks, f"breaks: {seen.breaks}"
    made = [g.kind for f in seen.functions for g in f.graphs]
    assert 0 < len(made) <= graphs, f"graphs: {made}"


def runs(name: str, seed: int, dynamic: bool) -> None:
    """Compiles the forward pass, and compares it with eager."""
    case = drawn(name, seed)
    model = case.model.eval()
    begin(seed)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic, options=ERROR)
    with torch.no_grad():
        for shape in case.shapes if dynamic else case.shapes[:1]:
            given = case.inputs(*shape)
            wanted, found = model(**given), compiled(**given)
            torch.testing.assert_close(main_output(found), main_output(wanted), rtol=TOLERANCE, atol=TOLERANCE)
    wholly_ours(2 if dynamic else 1)


def exports(name: str, seed: int, dynamic: bool) -> None:
    """Exports the forward pass, reads it, writes it as an ONNX file, and compares both with eager; that file in ONNX Runtime."""
    import onnxruntime

    case = drawn(name, seed)
    model = case.model.eval()
    begin(seed)
    given = case.inputs(*case.shapes[0])
    dims = {k: {d: torch.export.Dim(n, min=2, max=16) for d, n in case.open_dims[k].items()} for k in given} if dynamic else None
    if dims:  # one Dim for each name
        by_name = {n: torch.export.Dim(n, min=2, max=14) for k in given for n in case.open_dims[k].values()}
        dims = {k: {d: by_name[n] for d, n in case.open_dims[k].items()} for k in given}
    program = torch.export.export(model, (), kwargs=given, dynamic_shapes=dims)
    with tempfile.TemporaryDirectory() as folder:
        torch.export.save(program, f"{folder}/m.pt2")
        loaded = ng.torch.load(f"{folder}/m.pt2")
        ng.onnx.save(loaded, f"{folder}/m.onnx")
        session = onnxruntime.InferenceSession(f"{folder}/m.onnx")
        names = [o.name for o in session.get_outputs()]
        for shape in case.shapes if dynamic else case.shapes[:1]:
            given = case.inputs(*shape)
            with torch.no_grad():
                wanted = main_output(model(**given)).numpy()
            arrays = {k: v.numpy() for k, v in given.items()}
            found = loaded.run(arrays)["logits"]
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)
            taken = {i.name for i in session.get_inputs()}
            also = session.run(None, {k: v for k, v in arrays.items() if k in taken})[names.index("logits")]
            np.testing.assert_allclose(also, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def trains(name: str, seed: int, dynamic: bool) -> None:
    """Trains for some steps of AdamW, and compares the losses with those of eager."""
    case = drawn(name, seed)
    plain = case.model.train()
    begin(seed)
    shapes = case.shapes if dynamic else case.shapes[:1]
    batches = [case.inputs(*shapes[k % len(shapes)], train=True) for k in range(STEPS)]
    ours = copy.deepcopy(plain)

    def losses(model: Any, call: Any) -> list[float]:
        optimizer, found = torch.optim.AdamW(model.parameters(), 1e-3), []
        for batch in batches:
            optimizer.zero_grad()
            loss = call(**batch).loss
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    wanted = losses(plain, plain)
    found = losses(ours, torch.compile(ours, backend=backend, fullgraph=True, dynamic=dynamic, options=ERROR))
    assert np.isfinite(wanted).all() and wanted[len(shapes)] != wanted[0]
    worst = max(abs(a - b) for a, b in zip(wanted, found, strict=True))
    assert worst < TOLERANCE, f"losses differ by {worst}: {wanted} and {found}"
    wholly_ours(4 if dynamic else 2)


WAYS = {f"{way.__name__} {kind}": (way, kind == "dynamic") for way in (runs, exports, trains) for kind in ("static", "dynamic")}


def main() -> int:
    count, seed, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(MODELS)
    tried, failed = 0, 0
    for k in range(seed, seed + count):
        for name in names:
            for title, (way, dynamic) in WAYS.items():
                tried += 1
                try:
                    way(name, k, dynamic)
                except Exception as error:  # each is a finding
                    failed += 1
                    print(f"{name} {k} {title}: {type(error).__name__}: {' '.join(str(error).split())[:1500]}", flush=True)
                    if os.environ.get("TRACEBACK"):
                        traceback.print_exc()
    print(f"{tried} tried, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
