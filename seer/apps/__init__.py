"""Programs on top of the library: reports to look at, and the server."""
