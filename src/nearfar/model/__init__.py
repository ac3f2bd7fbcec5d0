"""The trained encoder: one class, its card, loading, saving and export."""
