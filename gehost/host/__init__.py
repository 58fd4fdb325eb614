"""Load vendors and plugins, run the stages of a compile.

Write its report and dumps.
"""
