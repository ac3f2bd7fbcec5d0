"""Training: the only package that imports Lightning."""
