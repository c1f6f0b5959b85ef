"""Several processes of one run: launchers, watchdog, stragglers, what they exchange."""
