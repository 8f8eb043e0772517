"""Measurements a user can repeat: `advsurprise bench …`."""
