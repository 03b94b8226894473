"""Measurements on an NVIDIA GPU.

`engines` is `python -m bench gpu`. The other modules are the steps of `make gpu` (tools/gpu.py), which must start with
the standard library alone: this package imports nothing.
"""
