"""The steps of a build, one module each."""
