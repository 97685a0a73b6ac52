"""A rank of the tests. What it does is its first argument."""

import json
import os
import pathlib
import signal
import sys
import time

rank = int(os.environ["RANK"])


def tell():
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    told = {name: os.environ[name] for name in names}
    told |= {"node": os.uname().nodename, "uid": os.getuid(), "names": sorted(os.environ)}
    print(json.dumps(told), flush=True)


def fail():
    if rank == 3:
        print("rank three has had enough", file=sys.stderr)
        sys.exit(7)
    time.sleep(600)


def sleep():
    print("here", flush=True)
    time.sleep(600)


def warned():  # told before its time is over, it asks to go on later; the second time it ends
    if pathlib.Path("saved").exists():
        print("resumed", flush=True)
        return
    told = []
    signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
    print("ready", flush=True)
    while not told:
        time.sleep(0.1)
    # A scheduler may tell more than once, and Python has no handlers when it ends.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    print("told", flush=True)
    pathlib.Path(f"told.{rank}").touch()
    while len(list(pathlib.Path(".").glob("told.*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.1)
    pathlib.Path("saved").touch()
    sys.exit(75)


globals()[sys.argv[1]]()
