"""What every long-running process needs: supervised threads, signals that stop it, its limit on open files."""
