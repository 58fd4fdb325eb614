func.func @index_read_by_r1(%a: tensor<4xi32>, %b: tensor<4x4xi32>) -> tensor<4x4xi32> {
  %v = tensor.empty() : tensor<4xi32>
  %e = tensor.empty() : tensor<4x4xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<4xi32>) outs(%v : tensor<4xi32>) {
  ^bb0(%x0: i32, %x1: i32):
    %i = linalg.index 0 : index
    %p = arith.index_cast %i : index to i32
    %r = arith.addi %x0, %p : i32
    linalg.yield %r : i32
  } -> tensor<4xi32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0, %b : tensor<4xi32>, tensor<4x4xi32>) outs(%e : tensor<4x4xi32>) {
  ^bb0(%x0: i32, %x1: i32, %x2: i32):
    %r = arith.muli %x0, %x1 : i32
    linalg.yield %r : i32
  } -> tensor<4x4xi32>
  return %1 : tensor<4x4xi32>
}
