"""Kernels in C for fused groups, loaded by an unmodified ONNX Runtime: ``gehost kernels``."""
