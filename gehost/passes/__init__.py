"""Pass classes, their registration, and the driver that runs rules."""
