"""A checkpoint of a run for others: exported to a folder, or pushed to the Hugging Face Hub."""
