"""What is watched in a run besides its metrics file, none of it part of the configuration."""
