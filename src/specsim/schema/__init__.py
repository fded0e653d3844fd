"""What people write (pydantic records) and what predictions say (frozen dataclasses)."""
