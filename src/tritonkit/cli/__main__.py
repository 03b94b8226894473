"""`python -m tritonkit.cli`, the same as `tritonkit`."""

from tritonkit.cli import main

main()
