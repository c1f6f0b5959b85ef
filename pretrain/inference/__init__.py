"""Inference with trained models: masks, continuations, hidden states, attention maps."""
