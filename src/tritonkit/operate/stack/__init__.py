"""Replicas, gateway, Prometheus and Redis on one machine, without containers.

from tritonkit.operate.stack import Stack, StackSettings

with Stack(StackSettings(root, root / "model_repository", replicas=2)) as stack:
    stack.run_until_signal()
"""

from tritonkit.operate.stack.stack import Stack
from tritonkit.operate.stack.state import read_state, stop_running
from tritonkit.operate.stack.values import StackEvent, StackPart, StackSettings

__all__ = ["Stack", "StackEvent", "StackPart", "StackSettings", "read_state", "stop_running"]
