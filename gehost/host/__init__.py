"""Load vendors and plugins, run a compile's stages, write report and dumps."""
