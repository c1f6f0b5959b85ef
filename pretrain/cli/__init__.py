"""The command line: one file a verb, with its arguments and what it prints."""
