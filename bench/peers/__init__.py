"""tritonkit compared with the servers that others use; see docs/benchmarks.md."""
