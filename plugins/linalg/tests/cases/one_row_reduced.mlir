func.func @one_row_reduced(%a: tensor<1x10xf32>, %b: tensor<1x10xf32>, %o: tensor<1xf32>) -> tensor<1xf32> {
  %e = tensor.empty() : tensor<1x10xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<1x10xf32>, tensor<1x10xf32>) outs(%e : tensor<1x10xf32>) {
  ^bb0(%x0: f32, %x1: f32, %x2: f32):
    %r = arith.addf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<1x10xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (0, d0)>, affine_map<(d0) -> (0)>], iterator_types = ["reduction"]} ins(%0 : tensor<1x10xf32>) outs(%o : tensor<1xf32>) {
  ^bb0(%x0: f32, %x1: f32):
    %r = arith.addf %x1, %x0 : f32
    linalg.yield %r : f32
  } -> tensor<1xf32>
  return %1 : tensor<1xf32>
}
