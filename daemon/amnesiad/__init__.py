"""amnesiad: the memory sidecar that governs how agent memory ends."""

__version__ = "0.1.0"
