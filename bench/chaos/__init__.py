"""A stack whose parts are killed and stopped under checked load: `python -m bench chaos`."""
