"""Measurements: `python -m bench` lists them, `python -m bench NAME --json FILE` runs one.

Only ratios of things measured side by side in one run are claimed; the machine's speed cancels out.
"""
