#!/bin/sh
# Run the tests with each installed Python, then with the oldest and newest onnx and ONNX Runtime.
set -eu
cd "$(dirname "$0")/.."
PROGRAMS="pytest pytest-xdist hypothesis jsonschema scipy onnx_ir sympy hatchling"
PRODUCTS="./plugins/linalg[test] ./plugins/hlo[test] ./plugins/sharding[test] ./plugins/zoo[test]"

check() {  # python, name, requirements
    python=$1 name=$2; shift 2
    rm -rf "build/versions/$name"
    "$python" -m venv "build/versions/$name"
    "build/versions/$name/bin/python" -m pip install --quiet --disable-pip-version-check . $PRODUCTS $PROGRAMS "$@"
    echo "== $name"
    "build/versions/$name/bin/python" -m pytest -n auto
    "build/versions/$name/bin/python" -m tools.runtime.kernels  # the CPU's column of the table, for this runtime
}

for minor in 11 12 13 14; do
    if command -v "python3.$minor" >/dev/null; then
        check "python3.$minor" "python3.$minor" 'onnx==1.23.2' 'onnxruntime==1.31.1'
    fi
done
check python3 oldest 'onnx==1.22.*' 'onnxruntime==1.21.1'
check python3 newest --upgrade onnx onnxruntime
