"""Groups of ONNX nodes: lowered, fused and joined by rows; also derived from a function body."""
