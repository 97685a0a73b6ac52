"""Programs for the tests of what ranks form."""

#: As `torchrun --nproc-per-node 2` inside of the program: the rank's variables are replaced.
STARTS_RANKS = """\
import os, subprocess, sys, time
if len(sys.argv) == 1:
    names = [os.environ | {"RANK": str(n), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"} for n in range(2)]
    ranks = [subprocess.Popen([sys.executable, __file__, "rank"], env=each) for each in names]
    raise SystemExit(max(each.wait() for each in ranks))
time.sleep(6)
"""
