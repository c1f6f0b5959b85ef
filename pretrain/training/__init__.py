"""Training: the loop, the training step, optimizers, losses and evaluation during training."""
