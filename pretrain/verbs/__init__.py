"""Verbs whose work is done elsewhere: what they take on the command line, read before anything heavy is imported."""
