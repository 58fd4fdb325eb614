"""Load vendors and plugins, run the stages of a compile, write its report and dumps."""
