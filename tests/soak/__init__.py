"""Real kills: a soak on the real control plane, judged from the API server's watch history alone.

``python -m tests.soak --kills 200 --seed 1 --json``. `history.py` and `checker.py` share no code with
Muster; `load.py` and `faults.py` make the trouble.
"""
