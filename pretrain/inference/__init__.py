"""What a trained model is asked: masks, continuations, hidden states, attention maps."""
