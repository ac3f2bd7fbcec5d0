"""How good are the embeddings? Protocols, splits, results, and the one path from an encoder and data to numbers."""
