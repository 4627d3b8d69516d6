"""The commands, one file per family. Each command registers itself: to add one, add a file here.

Showing help imports all of these files, so they import the heavy parts of pamc only inside functions.
"""
