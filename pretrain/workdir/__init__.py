"""The files of a run's working directory."""
