// Empties and a fill take their sizes from tensor.dim, which nothing else reads.
#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
module {
  func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %z = arith.constant 0.0 : f32
    %n = tensor.dim %a, %c0 : tensor<?x?xf32>
    %m = tensor.dim %a, %c1 : tensor<?x?xf32>
    %e = tensor.empty(%n, %m) : tensor<?x?xf32>
    %fl = linalg.fill ins(%z : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32):
      %i = linalg.index 0 : index
      %j = arith.index_cast %i : index to i64
      %k = arith.sitofp %j : i64 to f32
      %r = arith.addf %x, %k : f32
      linalg.yield %r : f32
    } -> tensor<?x?xf32>
    %1 = linalg.generic {indexing_maps = [#t, #id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %b, %fl : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %q: f32, %o: f32):
      %r = arith.mulf %x, %y : f32
      %s = arith.addf %r, %q : f32
      linalg.yield %s : f32
    } -> tensor<?x?xf32>
    return %1 : tensor<?x?xf32>
  }
}
