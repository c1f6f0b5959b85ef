"""What is watched in a run apart from its metrics file; no part of the configuration."""
