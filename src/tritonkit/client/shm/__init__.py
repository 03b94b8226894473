"""Tensors in shared memory, for a client and a server on one machine."""

from __future__ import annotations

from tritonkit.client.dlpack import DeviceArray
from tritonkit.client.shm.call_regions import CallRegions, Placement
from tritonkit.client.shm.layout import output_sizes
from tritonkit.client.shm.pool import RegionPool
from tritonkit.client.shm.settings import SharedMemory

__all__ = ["CallRegions", "DeviceArray", "Placement", "RegionPool", "SharedMemory", "output_sizes"]
