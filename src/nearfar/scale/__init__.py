"""Exactness beyond one pass: what proves that loss and gradient are right."""
