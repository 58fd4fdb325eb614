"""HLO text of XLA: read, printed, shown as data flow, imported as ONNX."""
