"""Images from folders, tables, shards, arrays and code."""
