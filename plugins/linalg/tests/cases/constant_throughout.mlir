func.func @constant_throughout(%a: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %k = arith.constant dense<42.0> : tensor<2xf32>
  %e = tensor.empty() : tensor<2x3x4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%k, %a : tensor<2xf32>, tensor<2x3x4xf32>) outs(%e : tensor<2x3x4xf32>) {
  ^bb0(%x0: f32, %x1: f32, %x2: f32):
    %r = arith.addf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<2x3x4xf32>
  return %1 : tensor<2x3x4xf32>
}
