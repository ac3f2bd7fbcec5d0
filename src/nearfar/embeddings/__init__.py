"""Embeddings in files, and what one does with them: write, search, find duplicates."""

from nearfar.embeddings.files import Embeddings
from nearfar.embeddings.write import Embedded, embed

__all__ = ["Embedded", "Embeddings", "embed"]
