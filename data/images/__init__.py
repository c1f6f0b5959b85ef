"""Images: their stores, their classes, and how they are decoded and augmented."""
