"""The command line: one file per verb, with its arguments and its output."""
