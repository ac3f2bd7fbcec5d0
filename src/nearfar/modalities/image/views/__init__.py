"""Views of images: whole batches, on the images' device, from an explicit generator."""
