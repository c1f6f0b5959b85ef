"""The Hugging Face Hub, through `huggingface_hub` (extra `hub`): addresses, errors, datasets."""
