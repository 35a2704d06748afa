"""The 62 architectures, each tiny and with random weights."""

from typing import Any

T = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
S = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
V = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": 32,
    "patch_size": 8,
    "num_channels": 3,
}
T5 = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 37,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
R = dict(T, pad_token_id=1, bos_token_id=0, eos_token_id=2)
TINY = {
    "albert": dict(T, embedding_size=16),
    "bart": S,
    "beit": V,
    "bert": T,
    "big-bird": dict(T, attention_type="original_full"),
    "bigbird-pegasus": dict(
        S,
        attention_type="original_full",
    ),
    "blenderbot": S,
    "blenderbot-small": S,
    "bloom": {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 3},
    "camembert": R,
    "clip": {
        "text_config": dict(T, projection_dim=16, eos_token_id=2, bos_token_id=0, pad_token_id=1),
        "vision_config": dict(V, projection_dim=16),
        "projection_dim": 16,
    },
    "codegen": {
        "vocab_size": 99,
        "n_positions": 64,
        "n_ctx": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
        "pad_token_id": 3,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "convbert": dict(T, embedding_size=32),
    "convnext": {
        "num_channels": 3,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 2, 1],
        "image_size": 32,
    },
    "convnextv2": {
        "num_channels": 3,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 2, 1],
        "image_size": 32,
    },
    "data2vec-text": R,
    "data2vec-vision": V,
    "deberta": dict(
        T,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_biased_input=False,
        max_relative_positions=32,
        type_vocab_size=0,
    ),
    "deberta-v2": dict(
        T,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_biased_input=False,
        max_relative_positions=32,
        type_vocab_size=0,
    ),
    "deit": V,
    "detr": {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": {
            "model_type": "resnet",
            "embedding_size": 8,
            "hidden_sizes": [8, 12, 16, 24],
            "depths": [1, 1, 1, 1],
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
        },
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37,
        "num_queries": 7,
    },
    "distilbert": {
        "vocab_size": 99,
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 37,
        "max_position_embeddings": 64,
    },
    "electra": dict(T, embedding_size=16),
    "flaubert": {
        "n_words": 99,
        "vocab_size": 99,
        "emb_dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "max_position_embeddings": 64,
    },
    "gpt-neo": {
        "vocab_size": 99,
        "max_position_embeddings": 64,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 4,
        "intermediate_size": 37,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    },
    "gptj": {
        "vocab_size": 99,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    },
    "ibert": R,
    "layoutlm": dict(T, max_2d_position_embeddings=1024),
    "layoutlmv3": dict(
        R,
        max_2d_position_embeddings=128,
        coordinate_size=6,
        shape_size=4,
        input_size=32,
        patch_size=8,
    ),
    "levit": {
        "image_size": 64,
        "num_channels": 3,
        "hidden_sizes": [16, 24, 32],
        "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "patch_size": 16,
    },
    "longt5": {
        "vocab_size": 99,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 37,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "local_radius": 4,
        "global_block_size": 4,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    },
    "m2m-100": S,
    "marian": S,
    "mbart": S,
    "mobilebert": dict(
        T,
        embedding_size=16,
        true_hidden_size=16,
        intra_bottleneck_size=16,
        num_feedforward_networks=2,
    ),
    "mobilevit": {
        "image_size": 64,
        "patch_size": 2,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 32],
        "num_attention_heads": 4,
    },
    "mt5": T5,
    "t5": T5,
    "longformer": dict(R, attention_window=4, sep_token_id=2),
    "rembert": dict(T, input_embedding_size=16, output_embedding_size=24),
    "whisper": {
        **{name: S[name] for name in S if name != "max_position_embeddings"},
        "num_mel_bins": 8,
        "max_source_positions": 20,
        "max_target_positions": 64,
    },
    "swin": {
        "image_size": 32,
        "patch_size": 4,
        "num_channels": 3,
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "window_size": 3,
    },
    "segformer": {
        "num_channels": 3,
        "num_encoder_blocks": 4,
        "depths": [1, 1, 1, 1],
        "sr_ratios": [8, 4, 2, 1],
        "hidden_sizes": [8, 8, 16, 16],
        "num_attention_heads": [1, 1, 2, 2],
        "decoder_hidden_size": 16,
    },
    "poolformer": {
        "num_channels": 3,
        "depths": [1, 1, 1, 1],
        "hidden_sizes": [8, 8, 16, 16],
    },
    "mobilenet-v1": {"image_size": 64, "depth_multiplier": 0.25},
    "mobilenet-v2": {"image_size": 64, "depth_multiplier": 0.25},
    "imagegpt": {
        "vocab_size": 99,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
    },
    "vision-encoder-decoder": {
        "encoder": dict(V, model_type="vit"),
        "decoder": {
            "model_type": "gpt2",
            "vocab_size": 99,
            "n_positions": 64,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "is_decoder": True,
            "add_cross_attention": True,
        },
    },
    "owlvit": {
        "text_config": dict(
            T, max_position_embeddings=16, eos_token_id=98, bos_token_id=97, pad_token_id=0
        ),
        "vision_config": V,
        "projection_dim": 16,
    },
    "groupvit": {
        "text_config": dict(
            T, max_position_embeddings=64, eos_token_id=98, bos_token_id=97, pad_token_id=1
        ),
        "vision_config": dict(
            V,
            depths=[1, 1, 1],
            num_group_tokens=[8, 4, 0],
            num_output_groups=[8, 4, 4],
            num_hidden_layers=3,
        ),
        "projection_dim": 16,
        "projection_intermediate_dim": 32,
    },
    "gpt2": {
        "vocab_size": 99,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    },
    "perceiver": {
        "num_latents": 8,
        "d_latents": 16,
        "d_model": 24,
        "num_blocks": 1,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 2,
        "num_cross_attention_heads": 2,
        "vocab_size": 99,
        "max_position_embeddings": 64,
        "image_size": 16,
        "qk_channels": 16,
        "v_channels": 16,
    },
    "plbart": S,
    "resnet": {
        "num_channels": 3,
        "embedding_size": 8,
        "hidden_sizes": [8, 12, 16, 24],
        "depths": [1, 1, 1, 1],
    },
    "roberta": R,
    "roformer": dict(T, embedding_size=32),
    "squeezebert": dict(
        T,
        embedding_size=32,
        q_groups=2,
        k_groups=2,
        v_groups=2,
        post_attention_groups=1,
        intermediate_groups=1,
        output_groups=1,
    ),
    "vit": V,
    "xlm": {
        "n_words": 99,
        "vocab_size": 99,
        "emb_dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "max_position_embeddings": 64,
    },
    "xlm-roberta": R,
    "xlm-roberta-xl": R,
    "yolos": dict(V, image_size=[32, 32], num_detection_tokens=5),
}


# With weights as these initialise them, a few tiny layers give next to nothing.
_SPREAD = 0.2
_SPREAD_WIDER = ("detr", "levit", "mobilebert", "mobilevit", "perceiver", "poolformer", "yolos")


_LAYERS = {"num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers"}


def of_one_layer(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return sizes with one layer of each kind, and of a decoder beside an encoder all.

    To capture a layer takes a second. With past, the names of values tell one layer from another.
    """
    return {
        name: of_one_layer(size) if isinstance(size, dict) else 1 if name in _LAYERS else size
        for name, size in sizes.items()
    }


def tiny_config(model_type: str, feature: str, *, one_layer: bool = False):
    """Return the configuration of a tiny model."""
    import transformers

    name = model_type.replace("-", "_")
    known = transformers.CONFIG_MAPPING
    sizes = of_one_layer(TINY[model_type]) if one_layer else TINY[model_type]
    config = transformers.AutoConfig.for_model(name if name in known else model_type, **sizes)
    config.num_labels = 2 if feature == "question-answering" else 3
    config.architectures = []
    return config


def tiny_model(model_type: str, feature: str, *, one_layer: bool = False):
    """Return a tiny model whose outputs depend on its inputs."""
    import torch
    import transformers

    from partwise.transformers.feature_choice import config_for
    from partwise.transformers.quiet import quiet

    torch.manual_seed(0)
    with quiet():
        config = tiny_config(model_type, feature, one_layer=one_layer)
        auto = getattr(transformers, config_for(config, feature).auto_class)
        model = auto.from_config(config)
    if model_type in _SPREAD_WIDER:
        for weights in model.parameters():
            if weights.ndim > 1:
                torch.nn.init.normal_(weights, std=_SPREAD)
    if model_type == "mobilevit":
        _normalize(model)
    if model_type.startswith("mobilenet"):
        # So their values keep their size through fifty layers, of which half of V2's are linear.
        kind = "relu" if model_type == "mobilenet-v1" else "linear"
        for weights in model.parameters():
            if weights.ndim > 1:
                torch.nn.init.kaiming_normal_(weights, nonlinearity=kind)
    return model.eval()


def _normalize(model):
    """Let layers that normalize batches do so by what they really get."""
    import torch

    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1.0
    with torch.no_grad():
        model.train()(torch.randn(16, 3, 64, 64))
