"""Small pieces for other libraries' training loops; each needs its library installed."""
