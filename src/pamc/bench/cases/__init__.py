"""The cases of `pamc bench`, a module each."""
