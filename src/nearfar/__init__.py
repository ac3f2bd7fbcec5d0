"""Contrastive representation learning: pull what belongs together near, push the rest far."""

__version__ = "0.1.0"
