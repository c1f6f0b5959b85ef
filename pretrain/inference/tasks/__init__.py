"""Answers of fine-tuned heads."""
