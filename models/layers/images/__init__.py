"""Parts of models of images."""
