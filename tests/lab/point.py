"""A rank of a sweep's point. What it does is its point's value of `what`."""

import json
import os
import pathlib
import sys
import time

what, odd = sys.argv[1:]
found = {name: value for name, value in os.environ.items() if name.startswith("BAREBOAT_SWEEP_")}
print(json.dumps({"what": what, "odd": odd, "tag": os.environ["TAG"], **found}), flush=True)
if what == "fail":
    sys.exit(7)
if what == "sleep":
    time.sleep(600)
if what == "again":
    saved = pathlib.Path(f"saved.{found['BAREBOAT_SWEEP_INDEX']}.{os.environ['RANK']}")
    if not saved.exists():
        saved.touch()
        sys.exit(75)
    print("resumed", flush=True)
