"""The experiments of `pamc reproduce` and the cases of `pamc bench`: a new one is a new file here."""
