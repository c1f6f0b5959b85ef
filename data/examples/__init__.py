"""Labelled data for fine-tuning."""
