"""The tokenizer, or the image processor and the classes, of a Hugging Face folder."""
