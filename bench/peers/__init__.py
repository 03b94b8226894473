"""tritonkit beside the servers that others use; docs/benchmarks.md says how."""
