"""The pages of docs/cookbook: what each asks of its reader, and what it serves; see docs/bench.md."""
