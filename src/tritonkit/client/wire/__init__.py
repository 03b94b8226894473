"""What travels: requests and answers as bytes, and what carries them."""

__all__: list[str] = []
