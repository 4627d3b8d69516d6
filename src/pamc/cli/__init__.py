"""Command-line interface: parses options, calls the library, shows results."""
