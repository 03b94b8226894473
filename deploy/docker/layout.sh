#!/bin/sh
# Lays the wheel's tritonserver out as NVIDIA's image does (/opt/tritonserver), with the twins of its
# native backends and the one stub that fits. Real files: Triton refuses links out of its backends.
set -eu
packages=$(echo /opt/tritonkit/venv/lib/python3.*/site-packages)
python=$(basename "$(dirname "$packages")" | sed s/python//)
wheel=$packages/pytriton/tritonserver
mkdir -p /opt/tritonserver
mv "$wheel/bin" "$wheel/backends" "$wheel/caches" /opt/tritonserver/
cp "$wheel/python_backend_stubs/$python/triton_python_backend_stub" /opt/tritonserver/backends/python/
mv "$packages/nvidia_pytriton.libs" /opt/tritonserver/lib
for twin in /tmp/backends/*/; do # what the twins share lies beside each model.py
    cp -r "$twin" /opt/tritonserver/backends/
    cp /tmp/backends/*.py "/opt/tritonserver/backends/$(basename "$twin")"
done
rm -rf "$wheel"
# OpenVINO's parts for other devices and for compilers: 63 of its 180 MB.
rm -rf "$packages/openvino/include" "$packages/openvino/cmake" "$packages/openvino/libs/cache.json" \
    "$packages"/openvino/libs/libopenvino_intel_[gn]pu_*
