"""The families: a configuration of transformers, diffusers or timm with small sizes, and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SMALL: Mapping[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "embed_dim", "embedding_size", "encoder_hidden_dim"),
        32,
    ),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), 2
    ),
    **dict.fromkeys(("decoder_layers", "num_encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_num_hidden_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(
        (
            *("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads", "num_heads"),
            *("decoder_attention_heads", "attention_heads", "num_encoder_attention_heads"),
            *("num_decoder_attention_heads", "encoder_num_attention_heads"),
            *("decoder_num_attention_heads", "speech_encoder_attention_heads"),
        ),
        4,
    ),
    **dict.fromkeys(
        ("num_key_value_heads", "encoder_num_key_value_heads", "decoder_num_key_value_heads"), 2
    ),
    **dict.fromkeys(
        (
            *("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "d_inner"),
            *("n_inner", "dim_feedforward", "d_ff", "moe_intermediate_size", "ffn_hidden_size"),
            *("shared_expert_intermediate_size", "speech_encoder_intermediate_size", "mlp_dim"),
            *("intermediate_size_mlp",),
        ),
        64,
    ),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "qk_rope_head_dim", "qk_nope_head_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), 16),
    "num_experts_per_tok": 2,
    "v_head_dim": 4,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "image_size": 32,
    "patch_size": 8,
    "num_mel_bins": 16,
    "first_k_dense_replace": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Sizes by the names that configurations use."""


@dataclass(frozen=True)
class Family:
    """A model: ``kind`` names its inputs (see ``export.py``), ``own`` what differs from ``SMALL``."""

    model: str
    """A class of transformers or diffusers ("diffusers.X"), a name of timm ("timm:x")."""
    kind: str = "text"
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    config: str = ""
    """The class of the configuration, else the model's name with "Config" for "Model"."""


def _of(kind: str, **models: str) -> dict[str, Family]:
    return {name: Family(model, kind) for name, model in models.items()}


CONV = {"conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3]}
SPEECH = {**CONV, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
STAGES = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2, "patch_size": 4}

FAMILIES: dict[str, Family] = {
    # the table of causes, and the rotary column
    **_of(
        "text",
        bert="BertModel",
        llama="LlamaModel",
        gemma2="Gemma2Model",
        granite="GraniteModel",
        nomic_bert="NomicBertModel",
        eurobert="EuroBertModel",
        esm="EsmModel",
        qwen3="Qwen3Model",
        modernbert="ModernBertModel",
        glm="GlmModel",
        persimmon="PersimmonModel",
        nemotron="NemotronModel",
        squeezebert="SqueezeBertModel",
        diffllama="DiffLlamaModel",
        xlnet="XLNetModel",
        mpnet="MPNetModel",
        convbert="ConvBertModel",
    ),
    "deepseek_v3": Family("DeepseekV3Model", own={"num_key_value_heads": 4}),
    "minicpm3": Family("MiniCPM3Model", own={"num_key_value_heads": 4}),
    "torchenc": Family("torch.nn.TransformerEncoder", "hidden"),
    "falcon": Family("FalconModel", own={"alibi": False}),
    "gemma3": Family("Gemma3TextModel", own={"sliding_window": 4}),
    "exaone4": Family("Exaone4Model", own={"sliding_window": 4}),
    "parakeet": Family(
        "ParakeetEncoder",
        "mels",
        {"subsampling_conv_channels": 8, "num_key_value_heads": 4, "subsampling_factor": 4},
        "ParakeetEncoderConfig",
    ),
    "conformer": Family("Wav2Vec2ConformerModel", "waves", SPEECH),
    "wavlm": Family("WavLMModel", "waves", SPEECH),
    "hubert": Family("HubertModel", "waves", SPEECH),
    "swin": Family("SwinModel", "image", STAGES),
    "swinv2": Family("Swinv2Model", "image", STAGES | {"pretrained_window_sizes": [0, 0]}),
    "sam_encoder": Family(
        "SamVisionModel",
        "image",
        {"window_size": 3, "global_attn_indexes": [1], "output_channels": 8, "num_pos_feats": 4},
        "SamVisionConfig",
    ),
    "vitdet": Family("VitDetModel", "image", {"window_size": 2, "use_relative_position_embeddings": True, "window_block_indices": [0], "pretrain_image_size": 32}),
    "dinov3": Family("DINOv3ViTModel", "image"),
    "prophetnet": Family("ProphetNetModel", "seq2seq"),
    "funnel": Family("FunnelModel", own={"block_sizes": [1, 1]}),
    "longformer": Family("LongformerModel", own={"attention_window": 4}),
    # further families
    **_of(
        "text",
        olmo="OlmoModel",
        olmo2="Olmo2Model",
        olmo3="Olmo3Model",
        phi="PhiModel",
        phi3="Phi3Model",
        starcoder2="Starcoder2Model",
        stablelm="StableLmModel",
        cohere2="Cohere2Model",
        mixtral="MixtralModel",
        gpt_neox="GPTNeoXModel",
        bloom="BloomModel",
        mpt="MptModel",
        opt="OPTModel",
        smollm3="SmolLM3Model",
        ernie4_5="Ernie4_5Model",
        helium="HeliumModel",
        arcee="ArceeModel",
        apertus="ApertusModel",
        bitnet="BitNetModel",
        deberta="DebertaModel",
        deberta_v2="DebertaV2Model",
        roformer="RoFormerModel",
        nystromformer="NystromformerModel",
        hunyuan="HunYuanDenseV1Model",
        seed_oss="SeedOssModel",
        ministral="MinistralModel",
        glm4_moe="Glm4MoeModel",
        qwen3_moe="Qwen3MoeModel",
    ),
    "gptj": Family("GPTJModel", own={"rotary_dim": 4}),
    "dots1": Family("Dots1Model", own={"n_shared_experts": 1, "num_key_value_heads": 4}),
    "gpt_oss": Family("GptOssModel", own={"sliding_window": 4}),
    "llama4": Family("Llama4TextModel", own={"attention_chunk_size": 4, "num_hidden_layers": 4}),
    "gemma3n": Family(
        "Gemma3nTextModel",
        own={"sliding_window": 4, "num_kv_shared_layers": 0, "vocab_size_per_layer_input": 100, "hidden_size_per_layer_input": 8, "laurel_rank": 8, "intermediate_size": [64, 64], "activation_sparsity_pattern": [0.0, 0.0], "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "qwen3_next": Family(
        "Qwen3NextModel",
        own={"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "layer_types": ["linear_attention", "full_attention"]},
    ),
    "phi4_multimodal": Family("Phi4MultimodalVisionModel", "image", {"crop_size": 32}, "Phi4MultimodalVisionConfig"),
    "jamba": Family("JambaModel", own={"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4, "use_mamba_kernels": False}),
    "bamba": Family("BambaModel", own={"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}),
    "falcon_h1": Family("FalconH1Model", own={"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}),
    "nemotron_h": Family("NemotronHModel", own={"layers_block_type": ["linear_attention", "full_attention"], "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 1, "ssm_state_size": 8, "chunk_size": 8}),
    "lfm2": Family("Lfm2Model", own={"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]}),
    "t5gemma": Family("T5GemmaModel", "seq2seq"),
    **_of(
        "seq2seq",
        t5="T5Model",
        bart="BartModel",
        m2m_100="M2M100Model",
        pegasus="PegasusModel",
        marian="MarianModel",
    ),
    "whisper": Family("WhisperModel", "whisper", {"max_source_positions": 16, "max_target_positions": 32}),
    "moonshine": Family("MoonshineModel", "wave2seq", {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4}),
    "musicgen": Family("MusicgenForCausalLM", "codes", {"num_codebooks": 2}, "MusicgenDecoderConfig"),
    "seamless": Family("SeamlessM4Tv2SpeechEncoder", "mels", {"speech_encoder_layers": 2, "feature_projection_input_dim": 16, "adaptor_kernel_size": 2, "adaptor_stride": 2, "conv_depthwise_kernel_size": 3}, "SeamlessM4Tv2Config"),
    "wav2vec2_bert": Family("Wav2Vec2BertModel", "mels", {"feature_projection_input_dim": 16, "conv_depthwise_kernel_size": 3}),
    "audio_spectrogram": Family("ASTModel", "spectrogram", {"max_length": 32, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}),
    **_of(
        "image",
        vit="ViTModel",
        beit="BeitModel",
        dinov2="Dinov2Model",
        ijepa="IJepaModel",
        vit_msn="ViTMSNModel",
        deit="DeiTModel",
        yolos="YolosModel",
        siglip_vision="SiglipVisionModel",
        clip_vision="CLIPVisionModel",
        aimv2="Aimv2VisionModel",
        mlcd="MLCDVisionModel",
    ),
    "data2vec_vision": Family("Data2VecVisionModel", "image", {"use_relative_position_bias": True}),
    "siglip2": Family("Siglip2VisionModel", "patches", {"num_patches": 16, "patch_size": 4}, "Siglip2VisionConfig"),
    "pixtral": Family("PixtralVisionModel", "image", {"patch_size": 8}, "PixtralVisionConfig"),
    "segformer": Family("SegformerModel", "image", {"depths": [1, 1], "hidden_sizes": [16, 32], "num_attention_heads": [1, 2], "sr_ratios": [2, 1], "num_encoder_blocks": 2, "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2]}),
    "hiera": Family("HieraModel", "image", {"embed_dim": 16, "image_size": [64, 64], "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8]}),
    "mobilevit": Family("MobileViTModel", "image", {"image_size": 64, "patch_size": 2, "hidden_sizes": [16, 16, 24], "neck_hidden_sizes": [8, 8, 8, 16, 16, 24, 32]}),
    "levit": Family("LevitModel", "image", {"image_size": 64, "hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 2, 4], "depths": [1, 1, 1], "key_dim": [8, 8, 8], "patch_size": 16}),
    "pvt": Family("PvtModel", "image", {"num_attention_heads": [1, 2, 4, 8], "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 32, 64], "image_size": 64}),
    "focalnet": Family("FocalNetModel", "image", {"depths": [1, 1], "embed_dim": 16}),
    "florence_vision": Family("Florence2VisionBackbone", "pixels", {"depths": [1, 1, 1, 1], "embed_dim": [8, 16, 32, 64], "num_heads": [1, 2, 4, 8], "num_groups": [1, 2, 4, 8], "window_size": 2}, "Florence2VisionConfig"),
    "videomae": Family("VideoMAEModel", "video", {"num_frames": 4, "tubelet_size": 2}),
    "detr": Family("DetrModel", "image", {"num_queries": 5, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": "resnet"}),
    "clip_text": Family("CLIPTextModel", own={"eos_token_id": 99}),
    "siglip_text": Family("SiglipTextModel"),
    "layoutlm": Family("LayoutLMModel", "boxes"),
    "idefics3_vision": Family("Idefics3VisionTransformer", "image", {}, "Idefics3VisionConfig"),
    "patchtst": Family("PatchTSTModel", "series", {"context_length": 32, "num_input_channels": 2, "patch_length": 4, "patch_stride": 4, "d_model": 32}),
    # others' modules
    **{
        name: Family(f"timm:{of}", "image64")
        for name, of in {
            "maxvit": "maxvit_rmlp_pico_rw_256",
            "efficientvit": "efficientvit_b0",
            "efficientformer": "efficientformerv2_s0",
            "eva": "eva02_tiny_patch14_224",
            "cait": "cait_xxs24_224",
            "xcit": "xcit_nano_12_p16_224",
            "convit": "convit_tiny",
            "davit": "davit_tiny",
            "mvitv2": "mvitv2_tiny",
            "nextvit": "nextvit_small",
            "coatnet": "coatnet_pico_rw_224",
            "botnet": "botnet26t_256",
            "visformer": "visformer_tiny",
            "fastvit": "fastvit_sa12",
            "tinyvit": "tiny_vit_5m_224",
        }.items()
    },
    "dit": Family("diffusers.DiTTransformer2DModel", "dit", {"num_attention_heads": 4, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2, "sample_size": 8, "patch_size": 2, "norm_num_groups": 4}),
    "unet": Family("diffusers.UNet2DConditionModel", "unet", {"sample_size": 8, "block_out_channels": (16, 32), "layers_per_block": 1, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "cross_attention_dim": 32, "attention_head_dim": 4, "norm_num_groups": 4}),
    "flux": Family("diffusers.FluxTransformer2DModel", "flux", {"patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": (4, 4, 8)}),
    "sd3": Family("diffusers.SD3Transformer2DModel", "sd3", {"sample_size": 8, "patch_size": 2, "in_channels": 4, "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 4, "joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 32, "out_channels": 4, "pos_embed_max_size": 8}),
    "pixart": Family("diffusers.PixArtTransformer2DModel", "pixart", {"num_attention_heads": 4, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2, "sample_size": 8, "patch_size": 2, "norm_num_groups": 4, "cross_attention_dim": 32, "caption_channels": 32}),
    "vae": Family("diffusers.AutoencoderKL", "sample", {"block_out_channels": (16,), "down_block_types": ("DownEncoderBlock2D",), "up_block_types": ("UpDecoderBlock2D",), "norm_num_groups": 4, "latent_channels": 4}),
}  # fmt: skip


PAST = ("gemma2", "gemma3", "llama", "qwen3", "olmo2", "phi3", "gpt_oss", "bloom", "opt")
"""Decoders that are exported with keys and values of earlier positions, too: ``NAME_past``."""
