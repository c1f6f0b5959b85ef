"""Recurrent layers: a state that is read and written at each position of a row."""
