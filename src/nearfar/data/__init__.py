"""What all modalities share: sources, tables, packed samples, shards, the loader."""
