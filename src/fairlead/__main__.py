"""`python -m fairlead` is `fairlead`."""

from fairlead.cli.main import entry

entry()
