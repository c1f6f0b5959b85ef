"""What the cells of a recurrent model know of a text, measured in bits."""
