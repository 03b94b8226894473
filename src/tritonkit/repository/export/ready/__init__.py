"""Samples in files, and the metrics that tritonkit brings: `prepared.py` and `scoring.py` begin the two ways."""

__all__: list[str] = []
