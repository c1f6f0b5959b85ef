"""Fine-tuning: `train` with labelled texts, a head, its loss and pretrained parameters."""
