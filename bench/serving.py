run=None
