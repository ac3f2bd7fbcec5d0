"""A detector on an encoder, and its average precision."""
