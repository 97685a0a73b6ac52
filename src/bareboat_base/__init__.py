"""What every package of Bareboat uses: errors, files, digests, processes. Imports no other of them."""
