"""Training for real: one run, from configuration to result, that can be killed and resumed at any instant."""
