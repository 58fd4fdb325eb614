func.func @other_result_not_a_permutation(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %v = tensor.empty() : tensor<4xf32>
  %0:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x4xf32>) outs(%v, %e : tensor<4xf32>, tensor<4x4xf32>) {
  ^bb0(%x0: f32, %x1: f32, %x2: f32):
    %r = math.exp %x0 : f32
    %s = math.tanh %x0 : f32
    linalg.yield %r, %s : f32, f32
  } -> (tensor<4xf32>, tensor<4x4xf32>)
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0#1 : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%x0: f32, %x1: f32):
    %r = math.sqrt %x0 : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
