"""The primitive under every contrastive loss, and its backends."""
