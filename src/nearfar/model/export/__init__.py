"""The encoder in the formats that other programs read."""
