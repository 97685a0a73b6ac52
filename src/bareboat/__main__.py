"""`python -m bareboat` is `bareboat`."""

from bareboat.cli.main import entry

entry()
