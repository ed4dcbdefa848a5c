"""One file per verb: a function for people who write Python, and what the command line calls after it has parsed."""
