func.func @f(%a0: tensor<f32>, %a1: tensor<4xf32>, %a2: tensor<2xf32>, %o3_0: tensor<2xf32>, %o4_0: tensor<f32>, %o4_1: tensor<f32>, %o5_0: tensor<f32>, %s5: tensor<3xf32>) -> tensor<f32> {
  %o0_0 = tensor.empty() : tensor<4x2xf32>
  %v0_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%a1, %a2 : tensor<4xf32>, tensor<2xf32>) outs(%o0_0 : tensor<4x2xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %r = math.erf %in_1 : f32
    linalg.yield %r : f32
  } -> tensor<4x2xf32>
  %o1_0 = tensor.empty() : tensor<4x2xf32>
  %o1_1 = tensor.empty() : tensor<2x4xf32>
  %v1_0:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>], iterator_types = ["parallel", "parallel"]} ins(%v0_0, %v0_0 : tensor<4x2xf32>, tensor<4x2xf32>) outs(%o1_0, %o1_1 : tensor<4x2xf32>, tensor<2x4xf32>) {
  ^bb0(%in_2: f32, %in_3: f32, %out_1: f32, %out_2: f32):
    %r_1 = math.exp %in_2 : f32
    %r_2 = arith.mulf %in_3, %r_1 : f32
    %i = linalg.index 1 : index
    %r_3 = arith.index_cast %i : index to i32
    %r_4 = arith.sitofp %r_3 : i32 to f32
    %r_5 = arith.addf %r_2, %r_4 : f32
    %r_6 = math.tanh %r_5 : f32
    linalg.yield %r_5, %r_6 : f32, f32
  } -> (tensor<4x2xf32>, tensor<2x4xf32>)
  %o2_0 = tensor.empty() : tensor<4x2xf32>
  %v2_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%v0_0, %v1_0#1 : tensor<4x2xf32>, tensor<2x4xf32>) outs(%o2_0 : tensor<4x2xf32>) {
  ^bb0(%in_4: f32, %in_5: f32, %out_3: f32):
    %r_7 = math.exp %in_5 : f32
    %r_8 = arith.mulf %in_4, %r_7 : f32
    linalg.yield %r_8 : f32
  } -> tensor<4x2xf32>
  %v3_0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1)>, affine_map<(d0, d1, d2) -> (d0, d2 * 2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>], iterator_types = ["reduction", "reduction", "parallel"]} ins(%v1_0#1, %v1_0#1, %v1_0#0 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<4x2xf32>) outs(%o3_0 : tensor<2xf32>) {
  ^bb0(%in_6: f32, %in_7: f32, %in_8: f32, %out_4: f32):
    %r_9 = math.erf %in_6 : f32
    %r_10 = arith.addf %in_7, %r_9 : f32
    %r_11 = arith.addf %in_8, %r_10 : f32
    %r_12 = arith.addf %out_4, %r_11 : f32
    linalg.yield %r_12 : f32
  } -> tensor<2xf32>
  %v4_0:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> ()>], iterator_types = ["reduction", "reduction"]} ins(%v2_0 : tensor<4x2xf32>) outs(%o4_0, %o4_1 : tensor<f32>, tensor<f32>) {
  ^bb0(%in_9: f32, %out_5: f32, %out_6: f32):
    %r_13 = math.tanh %in_9 : f32
    %r_14 = arith.addf %out_5, %r_13 : f32
    %r_15 = math.erf %r_13 : f32
    %r_16 = arith.addf %out_6, %r_15 : f32
    linalg.yield %r_14, %r_16 : f32, f32
  } -> (tensor<f32>, tensor<f32>)
  %v5_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> ()>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%v4_0#1, %v4_0#1, %v4_0#0, %s5 : tensor<f32>, tensor<f32>, tensor<f32>, tensor<3xf32>) outs(%o5_0 : tensor<f32>) {
  ^bb0(%in_10: f32, %in_11: f32, %in_12: f32, %in_13: f32, %out_7: f32):
    %r_17 = math.erf %in_11 : f32
    %r_18 = arith.maximumf %r_17, %in_10 : f32
    %r_19 = arith.mulf %r_18, %in_12 : f32
    %r_20 = arith.maximumf %in_13, %r_19 : f32
    %r_21 = arith.addf %out_7, %r_20 : f32
    linalg.yield %r_21 : f32
  } -> tensor<f32>
  %o6_0 = tensor.empty() : tensor<f32>
  %v6_0 = linalg.generic {indexing_maps = [affine_map<() -> (1)>, affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%s5, %v5_0 : tensor<3xf32>, tensor<f32>) outs(%o6_0 : tensor<f32>) {
  ^bb0(%in_14: f32, %in_15: f32, %out_8: f32):
    %r_22 = math.erf %in_14 : f32
    %r_23 = arith.subf %in_15, %r_22 : f32
    linalg.yield %r_23 : f32
  } -> tensor<f32>
  return %v6_0 : tensor<f32>
}
