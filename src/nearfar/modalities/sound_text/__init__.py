"""Sounds with captions."""
