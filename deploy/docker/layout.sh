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
# NVIDIA's Python backend is the engine of ours: it is looked for where the wheel has it.
mkdir -p "$wheel/backends/python"
ln -s /opt/tritonserver/backends/python/libtriton_python.so "$wheel/backends/python/"
# The same once more with the native backends in their stand-ins' places. entry.py tries them where they will run,
# and a folder that Triton may load them from cannot be made there: the root is read-only, /tmp is noexec.
native=/opt/tritonserver/native-backends
for library in /opt/tritonkit/venv/lib/tritonkit/libtriton_*.so; do
    [ -f "$library" ] || continue
    name=$(basename "$library" .so | sed s/libtriton_//)
    [ -d "$native" ] || cp -r /opt/tritonserver/backends "$native"
    # The Python backend keeps its stub.
    [ "$name" = python ] || rm -r "${native:?}/$name"
    mkdir -p "$native/$name"
    mv "$library" "$native/$name/"
    ln -s "$native/$name/$(basename "$library")" "$library"
done
# OpenVINO's parts for other devices and for compilers: 63 of its 180 MB.
rm -rf "$packages/openvino/include" "$packages/openvino/cmake" "$packages/openvino/libs/cache.json" \
    "$packages"/openvino/libs/libopenvino_intel_[gn]pu_*
