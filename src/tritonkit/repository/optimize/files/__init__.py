"""Networks in ready-made files, served as they are: each kind is a module that reads, opens and copies its file."""

__all__: list[str] = []
