"""What happens to a state: the loop, the step, optimizers, losses, evaluation."""
