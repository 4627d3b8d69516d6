"""The command line: reads options, calls the library, shows the result."""
