func.func @strided_read(%a: tensor<8xf32>) -> tensor<4xf32> {
  %w = tensor.empty() : tensor<8xf32>
  %v = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%w : tensor<8xf32>) {
  ^bb0(%x0: f32, %x1: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0 * 2)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%0 : tensor<8xf32>) outs(%v : tensor<4xf32>) {
  ^bb0(%x0: f32, %x1: f32):
    %r = math.tanh %x0 : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
