"""Music as tokens: MIDI files and Bach's chorales, their encodings, and stores of them."""
