"""Attention by Splash, a Pallas kernel for TPUs that ships with JAX."""
