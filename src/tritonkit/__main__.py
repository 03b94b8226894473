"""`python -m tritonkit`."""

from tritonkit.cli import main

__all__: list[str] = []

main()
