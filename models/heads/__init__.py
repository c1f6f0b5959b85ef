"""Fine-tuning heads on any encoder."""
