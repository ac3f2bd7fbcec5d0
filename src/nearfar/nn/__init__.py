"""Building blocks that methods and modalities share; each is imported from its own module."""
