"""Model cards of exports."""
