"""Tables of numbers and categories, a row for each sample."""
