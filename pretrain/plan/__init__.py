"""Plan a run for machines that are absent: compile it for them and read the compiled program."""
