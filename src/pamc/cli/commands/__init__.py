"""The commands, a file for each family. A command registers itself: to add one, write one file here.

All files are imported to show help, so they import the heavy parts of pamc inside the functions that need them.
"""
