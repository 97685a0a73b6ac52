"""What every package of Bareboat uses: errors, files, digests, processes. Imports no other of them."""

from __future__ import annotations

__version__ = "0.1.0"
