"""What ``muster check`` looks at, one module a kind of file."""
