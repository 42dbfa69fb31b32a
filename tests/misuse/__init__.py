"""What must never crash the interpreter nor give a wrong number: threads, operators called with anything, shapes that do not fit."""
