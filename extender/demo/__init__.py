"""The demo: one story of two kinds of jobs, on a cluster in this process or on the real programs."""
