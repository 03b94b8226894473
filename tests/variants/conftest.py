"""Fixtures of the variants' tests."""

from tests.repository.optimize.variants.cpus import each_cpu

__all__ = ["each_cpu"]
