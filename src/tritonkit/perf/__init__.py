"""Measuring what is served, and deciding from it.

`load` sends requests and reports latency, `simulation` predicts it, `tune` chooses a model's settings, `plan` the
number of replicas, and `diagnose` names the bottleneck of servers that run.
"""

__all__: list[str] = []
