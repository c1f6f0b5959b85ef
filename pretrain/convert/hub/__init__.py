"""Exchange of models with the Hugging Face Hub, through `huggingface_hub` (extra `hub`)."""
