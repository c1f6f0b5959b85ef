"""What models of images predict, and where they look."""
