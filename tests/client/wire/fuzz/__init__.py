"""A fuzzer of what a server may send: recorded connections, mutated frame by frame."""
