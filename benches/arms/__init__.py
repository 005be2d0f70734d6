"""The arms: everything that can keep the state, each as its users run it."""
