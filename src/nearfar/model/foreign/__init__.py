"""Image-text models of other libraries."""
