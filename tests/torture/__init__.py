"""Clients that are killed at work, and a proof that what they were told is what is there."""
