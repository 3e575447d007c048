"""The commands of `kbench`, a module each. What does the work is imported when it is asked for."""
