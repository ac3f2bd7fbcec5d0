"""One small file per paper, and METHODS, a plain dict of them."""
