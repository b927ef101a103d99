"""The command line of turnwise; every command calls a function of the library."""
