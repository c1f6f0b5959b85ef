"""Read labelled examples for fine-tuning, and write them as token stores."""
