// MLIR tries no operand of @v behind %u, whose fusion loses the extent of d0; gehost fuses the tanh.
#id = affine_map<(d0, d1) -> (d0, d1)>
#scalar = affine_map<(d0, d1) -> ()>
func.func @f(%a: tensor<4x5xf32>, %s: tensor<f32>) -> tensor<5xf32> {
  %e = tensor.empty() : tensor<2x5xf32>
  %u = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1 * 2, d0)>, affine_map<(d0, d1) -> (d1, d0)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x5xf32>) outs(%e : tensor<2x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<2x5xf32>
  %g = tensor.empty() : tensor<f32>
  %t = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%s : tensor<f32>) outs(%g : tensor<f32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.tanh %x : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  %h = tensor.empty() : tensor<5xf32>
  %v = linalg.generic {indexing_maps = [#id, #scalar, affine_map<(d0, d1) -> (d1)>], iterator_types = ["parallel", "parallel"]} ins(%u, %t : tensor<2x5xf32>, tensor<f32>) outs(%h : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.mulf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  return %v : tensor<5xf32>
}
