"""The model card of an exported folder: README.md."""
