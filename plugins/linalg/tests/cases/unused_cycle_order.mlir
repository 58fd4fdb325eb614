func.func @f(%a0: tensor<4xf32>, %a1: tensor<f32>, %a2: tensor<f32>, %a3: tensor<4x2x4xf32>, %o4_1: tensor<2xf32>) -> (tensor<f32>, tensor<f32>) {
  %o0_0 = tensor.empty() : tensor<f32>
  %v0_0 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%a2 : tensor<f32>) outs(%o0_0 : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %r = math.tanh %in : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  %o1_0 = tensor.empty() : tensor<1xf32>
  %o1_1 = tensor.empty() : tensor<f32>
  %v1_0:2 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> (0)>, affine_map<() -> ()>], iterator_types = []} ins(%v0_0, %v0_0 : tensor<f32>, tensor<f32>) outs(%o1_0, %o1_1 : tensor<1xf32>, tensor<f32>) {
  ^bb0(%in_1: f32, %in_2: f32, %out_1: f32, %out_2: f32):
    %r_1 = math.exp %in_2 : f32
    %r_2 = arith.maximumf %in_1, %r_1 : f32
    %r_3 = math.erf %r_2 : f32
    linalg.yield %r_2, %r_3 : f32, f32
  } -> (tensor<1xf32>, tensor<f32>)
  %cst = arith.constant dense<42.5> : tensor<2xf32>
  %o2_0 = tensor.empty() : tensor<2xf32>
  %v2_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v1_0#1, %v0_0, %cst : tensor<f32>, tensor<f32>, tensor<2xf32>) outs(%o2_0 : tensor<2xf32>) {
  ^bb0(%in_3: f32, %in_4: f32, %in_5: f32, %out_3: f32):
    %r_4 = math.tanh %in_3 : f32
    %r_5 = arith.addf %in_4, %r_4 : f32
    %r_6 = arith.addf %r_5, %in_5 : f32
    linalg.yield %r_6 : f32
  } -> tensor<2xf32>
  %o3_0 = tensor.empty() : tensor<f32>
  %v3_0 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%v1_0#1 : tensor<f32>) outs(%o3_0 : tensor<f32>) {
  ^bb0(%in_6: f32, %out_4: f32):
    %r_7 = math.exp %in_6 : f32
    linalg.yield %r_7 : f32
  } -> tensor<f32>
  %o4_0 = tensor.empty() : tensor<2xf32>
  %v4_0:2 = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v1_0#1, %v3_0 : tensor<f32>, tensor<f32>) outs(%o4_0, %o4_1 : tensor<2xf32>, tensor<2xf32>) {
  ^bb0(%in_7: f32, %in_8: f32, %out_5: f32, %out_6: f32):
    %r_8 = math.erf %in_8 : f32
    %r_9 = arith.mulf %in_7, %r_8 : f32
    %i = linalg.index 0 : index
    %r_10 = arith.index_cast %i : index to i32
    %r_11 = arith.sitofp %r_10 : i32 to f32
    %r_12 = arith.addf %r_9, %r_11 : f32
    %r_13 = math.tanh %r_12 : f32
    %r_14 = arith.addf %out_6, %r_13 : f32
    linalg.yield %r_12, %r_14 : f32, f32
  } -> (tensor<2xf32>, tensor<2xf32>)
  %o5_0 = tensor.empty() : tensor<f32>
  %v5_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> ()>], iterator_types = ["parallel"]} ins(%v4_0#0, %v3_0 : tensor<2xf32>, tensor<f32>) outs(%o5_0 : tensor<f32>) {
  ^bb0(%in_9: f32, %in_10: f32, %out_7: f32):
    %r_15 = math.tanh %in_10 : f32
    %r_16 = arith.mulf %r_15, %in_9 : f32
    %i_1 = linalg.index 0 : index
    %r_17 = arith.index_cast %i_1 : index to i32
    %r_18 = arith.sitofp %r_17 : i32 to f32
    %r_19 = arith.addf %r_16, %r_18 : f32
    linalg.yield %r_19 : f32
  } -> tensor<f32>
  %o6_0 = tensor.empty() : tensor<f32>
  %v6_0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["parallel"]} ins(%v4_0#1, %v4_0#0 : tensor<2xf32>, tensor<2xf32>) outs(%o6_0 : tensor<f32>) {
  ^bb0(%in_11: f32, %in_12: f32, %out_8: f32):
    %r_20 = math.tanh %in_12 : f32
    %r_21 = arith.maximumf %r_20, %in_11 : f32
    linalg.yield %r_21 : f32
  } -> tensor<f32>
  %o7_0 = tensor.empty() : tensor<f32>
  %v7_0 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%v5_0, %v5_0 : tensor<f32>, tensor<f32>) outs(%o7_0 : tensor<f32>) {
  ^bb0(%in_13: f32, %in_14: f32, %out_9: f32):
    %r_22 = math.exp %in_14 : f32
    %r_23 = arith.maximumf %in_13, %r_22 : f32
    linalg.yield %r_23 : f32
  } -> tensor<f32>
  return %v0_0, %v5_0 : tensor<f32>, tensor<f32>
}
