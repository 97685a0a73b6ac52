"""The command line: one file per verb. `main` alone catches errors."""

import gc

# A command keeps what it imports and reads: looking for garbage among it takes a tenth of its time.
gc.set_threshold(100_000, 50, 100)
