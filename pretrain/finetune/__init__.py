"""Fine-tuning: `train` with labelled text, a head, its loss and pretrained parameters to begin with."""
