"""Pass classes, their registration, and the engine that runs rules."""
