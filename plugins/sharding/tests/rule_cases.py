"""Small models of one operator of today's exports each, to run under every strategy of its rule."""

from __future__ import annotations

LSTM = """(float[3,4,6] x, float[{d},32,6] w, float[{d},32,8] r, float[{d},64] b, int32[4] n,
  float[{d},4,8] h, float[{d},4,8] c) => (float[3,{d},4,8] y, float[{d},4,8] yh, float[{d},4,8] yc) {{
    y, yh, yc = LSTM <hidden_size = 8, direction = "{way}"{more}> (x, w, r, b, n, h, c) }}"""

TODAY: dict[str, tuple[int, str]] = {
    "attention": (
        23,
        "(float[4,4,6,8] q, float[4,4,2,8] k, float[4,4,2,4] v, float[6,2] m) => (float[4,4,6,4] z)"
        " { z = Attention (q, k, v, m) }",
    ),
    "attention_grouped_flat": (
        23,
        "(float[2,4,64] q, float[2,4,32] k, float[2,4,32] v) => (float[2,4,64] z)"
        " { z = Attention <q_num_heads = 8, kv_num_heads = 4, is_causal = 1> (q, k, v) }",
    ),
    "attention_one_key_head": (
        23,
        "(float[2,4,3,8] q, float[2,1,4,8] k, float[2,1,4,8] v, bool[2,4,3,4] m)"
        " => (float[2,4,3,8] z) { z = Attention (q, k, v, m) }",
    ),
    "attention_past": (
        23,
        "(float[2,4,2,8] q, float[2,2,2,8] k, float[2,2,2,8] v, float[2,2,6,8] pk,"
        " float[2,2,6,8] pv) => (float[2,4,2,8] z, float[2,2,8,8] nk, float[2,2,8,8] nv)"
        " { z, nk, nv = Attention <is_causal = 1> (q, k, v, , pk, pv) }",
    ),
    "attention_lengths": (
        24,
        "(float[2,4,2,8] q, float[2,2,4,8] k, float[2,2,4,8] v, int64[2] n) => (float[2,4,2,8] z)"
        " { one = Constant <value = int64 {1}> () l = Add (n, one)"
        " z = Attention (q, k, v, , , , l) }",
    ),
    "rotary": (
        23,
        "(float[2,4,6,8] x, float[9,4] c, float[9,4] s, int64[2,6] p) => (float[2,4,6,8] z)"
        " { z = RotaryEmbedding (x, c, s, p) }",
    ),
    "rotary_flat": (
        23,
        "(float[2,6,32] x, float[2,6,4] c, float[2,6,4] s) => (float[2,6,32] z)"
        " { z = RotaryEmbedding <num_heads = 4, interleaved = 1> (x, c, s) }",
    ),
    "rms_norm": (
        23,
        "(float[4,6,8] x, float[8] s) => (float[4,6,8] z) { z = RMSNormalization <axis = -1> (x, s) }",
    ),
    "group_norm": (
        21,
        "(float[2,8,6] x, float[8] s, float[8] b) => (float[2,8,6] z)"
        " { z = GroupNormalization <num_groups = 4> (x, s, b) }",
    ),
    "contrib_rotary": (
        20,
        "(float[2,6,32] x, int64[2,6] p, float[9,4] c, float[9,4] s) => (float[2,6,32] z)"
        " { z = com.microsoft.RotaryEmbedding <num_heads = 4> (x, p, c, s) }",
    ),
    "contrib_rotary_from_one_place": (
        20,
        "(float[2,4,2,8] x, int64[1] p, float[9,4] c, float[9,4] s) => (float[2,4,2,8] z)"
        " { z = com.microsoft.RotaryEmbedding (x, p, c, s) }",
    ),
    "experts": (
        20,
        "(float[2,4,8] x, float[8,3] p, float[3,8,6] v, float[3,6] b, float[3,6,8] w, float[3,8] c)"
        " => (float[2,4,8] z)"
        ' { z = com.microsoft.MoE <k = 2, activation_type = "gelu"> (x, p, v, b, w, c) }',
    ),
    "experts_by_rows": (
        20,
        "(float[8,8] x, float[8,3] p, float[3,8,6] v, float[3,6] b, float[3,6,8] w)"
        " => (float[8,8] z)"
        ' { z = com.microsoft.MoE <k = 1, activation_type = "relu"> (x, p, v, b, w) }',
    ),
    "quantized_experts": (
        20,
        "(float[2,4,32] x, float[8,3] p, uint8[3,32,16] v, float[3,32] a, uint8[3,32,16] w,"
        " float[3,32] c) => (float[2,4,32] z) { z = com.microsoft.QMoE <k = 2,"
        ' activation_type = "silu", expert_weight_bits = 4> (x, p, v, a, , w, c) }',
    ),
    "skip_norm": (
        20,
        "(float[2,4,8] x, float[2,4,8] y, float[8] s, float[8] b, float[8] c) =>"
        " (float[2,4,8] z, float[2,4,8] t)"
        " { z, , , t = com.microsoft.SkipLayerNormalization (x, y, s, b, c) }",
    ),
    "skip_rms_norm": (
        20,
        "(float[2,4,8] x, float[2,4,8] y, float[8] s) => (float[2,4,8] z, float[2,4,8] t)"
        " { z, , , t = com.microsoft.SkipSimplifiedLayerNormalization (x, y, s) }",
    ),
    "multi_head": (
        20,
        "(float[2,6,32] q, float[2,4,32] k, float[2,4,16] v, float[80] b, int32[2,4] m,"
        " float[1,4,6,4] a) => (float[2,6,16] z)"
        " { z = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v, b, m, a) }",
    ),
    "multi_head_past": (
        20,
        "(float[2,2,32] q, float[2,2,32] k, float[2,2,32] v, float[2,4,6,8] pk, float[2,4,6,8] pv)"
        " => (float[2,2,32] z, float[2,4,8,8] nk, float[2,4,8,8] nv)"
        " { z, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 4, unidirectional = 1>"
        " (q, k, v, , , , pk, pv) }",
    ),
    "packed_attention": (
        20,
        "(float[2,6,8] x, float[8,48] w, float[48] b, int32[2,6] m) => (float[2,6,16] z)"
        " { z = com.microsoft.Attention <num_heads = 4> (x, w, b, m) }",
    ),
    "packed_attention_sizes": (
        20,
        "(float[2,6,8] x, float[8,40] w, float[40] b) => (float[2,6,8] z)"
        " { z = com.microsoft.Attention"
        " <num_heads = 4, qkv_hidden_sizes = [16, 16, 8], unidirectional = 1> (x, w, b) }",
    ),
    "group_query": (
        20,
        "(float[2,4,64] q, float[2,4,32] k, float[2,4,32] v) => (float[2,4,64] z)"
        " { n = Constant <value = int32[2] {3, 3}> () t = Constant <value = int32 {4}> ()"
        " z = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 4>"
        " (q, k, v, , , n, t) }",
    ),
    "group_query_past": (
        20,
        "(float[2,1,64] q, float[2,1,32] k, float[2,1,32] v, float[2,4,5,8] pk, float[2,4,5,8] pv)"
        " => (float[2,1,64] z, float[2,4,6,8] nk, float[2,4,6,8] nv)"
        " { n = Constant <value = int32[2] {5, 5}> () t = Constant <value = int32 {6}> ()"
        " z, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 4>"
        " (q, k, v, pk, pv, n, t) }",
    ),
    "group_query_packed": (
        20,
        "(float[2,4,128] q) => (float[2,4,64] z)"
        " { n = Constant <value = int32[2] {3, 3}> () t = Constant <value = int32 {4}> ()"
        " z = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 4>"
        " (q, , , , , n, t) }",
    ),
    "lookup_rows": (
        20,
        "(float[8,4] t, int64[2,3] i) => (float[2,3,4] z) { two = Constant <value = int64 {2}> ()"
        " j = Sub (i, two) z = Gather (t, j) }",
    ),
    "lookup_one_row": (
        20,
        "(float[8,4,6] t, int32 i) => (float[4,6] z) { z = Gather (t, i) }",
    ),
    "gather_nd_batch": (
        20,
        "(float[4,6,8,2] x, int64[4,2,1] i) => (float[4,2,8,2] z)"
        " { z = GatherND <batch_dims = 1> (x, i) }",
    ),
    "scatter_elements": (
        20,
        '(float[4,8,6] x, int64[4,2,6] i, float[4,2,6] u) => (float[4,8,6] z)'
        ' { z = ScatterElements <axis = 1, reduction = "add"> (x, i, u) }',
    ),
    "scatter_elements_part": (
        20,
        "(float[4,8,2] x, int64[3,8,2] i, float[3,8,2] u) => (float[4,8,2] z)"
        ' { z = ScatterElements <axis = 1, reduction = "max"> (x, i, u) }',
    ),
    "scatter_nd": (
        20,
        "(float[6,4,8] x, int64[2,1] i, float[2,4,8] u) => (float[6,4,8] z)"
        ' { z = ScatterND <reduction = "add"> (x, i, u) }',
    ),
    "tensor_scatter": (
        24,
        "(float[2,4,8,6] c, float[2,4,2,6] u, int64[2] w) => (float[2,4,8,6] z)"
        " { z = TensorScatter (c, u, w) }",
    ),
    "tensor_scatter_circular": (
        24,
        "(float[2,8,4] c, float[2,2,4] u, int64[2] w) => (float[2,8,4] z)"
        ' { z = TensorScatter <axis = 1, mode = "circular"> (c, u, w) }',
    ),
    "einsum_ellipsis": (
        20,
        "(float[2,1,4,8] x, float[1,4,8,6] y) => (float[2,4,4,6] z)"
        ' { z = Einsum <equation = "...ij,...jk->...ik"> (x, y) }',
    ),
    "einsum_ellipsis_implicit": (
        20,
        '(float[4,2,8] x, float[8,4] y) => (float[2,4,4] z) { z = Einsum <equation = "b...a,ac"> (x, y) }',
    ),
    "einsum_diagonal": (
        20,
        '(float[4,8,8] x) => (float[4,8] z) { z = Einsum <equation = "bii->bi"> (x) }',
    ),
    "einsum_trace": (20, '(float[4,8,8] x) => (float[4] z) { z = Einsum <equation = "bii->b"> (x) }'),
    "einsum_outer_twice": (
        20,
        '(float[4,6] x, float[4,6] y) => (float[4] z) { z = Einsum <equation = "bi,bi->b"> (x, y) }',
    ),
    "lstm": (20, LSTM.format(d=1, way="reverse", more="")),
    "lstm_both": (
        20,
        LSTM.format(
            d=2,
            way="bidirectional",
            more=', activations = ["Sigmoid", "Tanh", "Relu", "Sigmoid", "Sigmoid", "Tanh"]',
        ),
    ),
    "gru": (
        20,
        "(float[3,4,6] x, float[2,24,6] w, float[2,24,8] r) => (float[2,4,8] h)"
        ' { , h = GRU <hidden_size = 8, direction = "bidirectional"> (x, w, r) }',
    ),
    "rnn": (
        20,
        "(float[3,4,6] x, float[1,8,6] w, float[1,8,8] r) => (float[3,1,4,8] y)"
        " { y = RNN <hidden_size = 8> (x, w, r) }",
    ),
    "conv_halo": (
        20,
        "(float[2,4,8,6] x, float[8,4,3,3] w, float[8] b) => (float[2,8,8,6] z)"
        " { z = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b) }",
    ),
    "conv_halo_stride": (
        20,
        "(float[2,4,16] x, float[8,4,7] w) => (float[2,8,8] z)"
        " { z = Conv <kernel_shape = [7], strides = [2], pads = [3, 3]> (x, w) }",
    ),
    "conv_halo_uneven": (
        20,
        "(float[1,4,16] x, float[8,2,3] w) => (float[1,8,16] z)"
        " { z = Conv <group = 2, dilations = [2], pads = [3, 1]> (x, w) }",
    ),
    "conv_halo_same": (
        20,
        "(float[1,3,8,8] x, float[5,3,3,3] w) => (float[1,5,4,4] z)"
        ' { z = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w) }',
    ),
    "conv_patches": (
        20,
        "(float[1,3,8,8] x, float[6,3,2,2] w, float[6] b) => (float[1,6,4,4] z)"
        " { z = Conv <strides = [2, 2]> (x, w, b) }",
    ),
    "max_pool_halo": (
        20,
        "(float[1,3,8,8] x) => (float[1,3,4,4] z)"
        " { z = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x) }",
    ),
    "average_pool_halo": (
        20,
        "(float[1,3,8] x) => (float[1,3,8] z) { z = AveragePool <kernel_shape = [3], pads = [1, 1]> (x) }",
    ),
    "global_max": (20, "(float[1,3,8,4] x) => (float[1,3,1,1] z) { z = GlobalMaxPool (x) }"),
    "global_lp": (20, "(float[2,3,8,4] x) => (float[2,3,1,1] z) { z = GlobalLpPool (x) }"),
    "fused_conv": (
        20,
        "(float[2,4,6,6] x, float[8,4,3,3] w, float[8] b) => (float[2,8,6,6] z) { z ="
        ' com.microsoft.FusedConv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], activation = "Relu">'
        " (x, w, b) }",
    ),
}  # fmt: skip
