"""Encoders of other libraries."""
