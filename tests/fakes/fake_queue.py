#!/usr/bin/env python3
"""FAKE. The commands of PBS Professional, LSF and Flux, where no real ones can be had.

They answer in the words of their documentation, and run jobs at once on two "hosts" that are this machine,
with the variables that jobs are documented to find. The name that it is called by says which command it is.
They show that Bareboat and its scripts go by the book, not that the book is right.

State: $FAKE_QUEUE/NUMBER/{script,log,cwd,pid,code,again}.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

STATE = pathlib.Path(os.environ["FAKE_QUEUE"])
HOSTS = ("127.0.0.1", "127.0.0.2")
CLEAN = {
    name: os.environ[name] for name in ("PATH", "HOME", "FAKE_QUEUE", "USER", "LOGNAME") if name in os.environ
}


def flux_id(number):
    return f"ƒ{number}Ab"


def number_of(text):
    return re.sub(r"\D", "", text.split(".")[0])


def jobs(texts):
    return [STATE / number for number in map(number_of, texts) if (STATE / number).is_dir()]


def state(job):
    """ "running", or the exit code."""
    return (job / "code").read_text() if (job / "code").exists() else "running"


def hand_over(log, script, kind):
    number = 1 + len(list(STATE.iterdir()))
    job = STATE / str(number)
    job.mkdir()
    (job / "script").write_text(script)
    (job / "log").write_text(log)
    # A real queue's jobs are no children of who hands them over, and inherit no blocked signals from there.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    subprocess.Popen(
        [sys.executable, os.path.realpath(__file__), "run", kind, str(job)], env=CLEAN,
        start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return number


def run(kind, folder):
    job = pathlib.Path(folder)
    nodes = {"pbs": r"select=(\d+)", "flux": r"--nodes=(\d+)", "lsf": r"-n (\d+)"}[kind]
    text = (job / "script").read_text()
    found = int(re.search(nodes, text)[1])
    if kind == "lsf":
        found //= int(re.search(r"span\[ptile=(\d+)\]", text)[1])
    hosts = HOSTS[:found]
    (job / "hosts").write_text("".join(f"{host}\n" for host in hosts for _ in range(2)))
    variables = {
        "pbs": {
            "PBS_JOBID": f"{job.name}.pbs01",
            "PBS_NODEFILE": str(job / "hosts"),
            "PBS_ENVIRONMENT": "PBS_BATCH",
        },
        "lsf": {"LSB_JOBID": job.name, "LSB_DJOB_HOSTFILE": str(job / "hosts"), "LSB_BATCH_JID": job.name},
        "flux": {"FLUX_ENCLOSING_ID": flux_id(job.name), "FAKE_HOSTS": " ".join(hosts)},
    }[kind]
    while True:
        with open((job / "log").read_text(), "ab") as log:
            child = subprocess.Popen(
                ["bash", str(job / "script")], env={**CLEAN, **variables},
                stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        (job / "pid").write_text(str(child.pid))
        code = child.wait()
        if not (job / "again").exists():
            break
        (job / "again").unlink()
    (job / "code").write_text(str(code if code >= 0 else 128 - code))


def on_host(words):
    os.execvpe(words[0], words, {**os.environ, "FAKE_HOST": "1"})


def end(texts):
    for job in jobs(texts):
        for _ in range(50):
            if (job / "pid").exists():
                break
            time.sleep(0.1)
        os.kill(int((job / "pid").read_text()), signal.SIGTERM)


def qsub(words):
    if words == ["--version"]:
        print("pbs_version = 2021.1.3.20220217134230")
        return
    print(f"{hand_over(words[words.index('-o') + 1], pathlib.Path(words[-1]).read_text(), 'pbs')}.pbs01")


def qstat(words):
    if words == ["-Q", "-f"]:
        print("Queue: workq\n    queue_type = Execution\n    enabled = True\n    started = True\n")
        return
    failed = 0
    for job in jobs(word for word in words if word[0] != "-"):
        code = state(job)
        if code != "running" and "-x" not in words:
            print(f"qstat: {job.name}.pbs01 Job has finished, use -x or -H to obtain historical job "
                  "information",
                  file=sys.stderr)  # fmt: skip
            failed = 35
            continue
        print(
            f"Job Id: {job.name}.pbs01\n    Job_Name = job\n"
            f"    job_state = {'R' if code == 'running' else 'F'}"
        )
        print(
            "    exec_host = 127.0.0.1/0*2+127.0.0.2/0*2\n"
            "    Variable_List = PBS_O_HOME=/home/ada,\n\tPBS_O_LANG=C"
        )
        print(f"    Exit_status = {code}\n" if code != "running" else "")
    sys.exit(failed)


def qrerun(_words):
    sys.exit("qrerun: Unauthorized Request")


def bsub(words):
    number = hand_over(words[words.index("-o") + 1], sys.stdin.read(), "lsf")
    print(f"Job <{number}> is submitted to default queue <normal>.")


def bjobs(words):
    for word in words[words.index("-o") + 2 :]:
        if not jobs([word]):
            print(f"Job <{word}> is not found", file=sys.stderr)
            continue
        code = state(STATE / word)
        told = {"running": "RUN|-", "0": "DONE|-"}.get(code, f"EXIT|{code}")
        print(f"{word}|{told}|2*127.0.0.1:2*127.0.0.2|-")


def brequeue(words):
    for job in jobs(words):
        (job / "again").touch()
        print(f"Job <{job.name}> is being requeued")
    end(words)


def flux(words):
    match words:
        case ["version"]:
            print("commands:    \t\t0.60.0\nlibflux-core:\t\t0.60.0")
        case ["--parent" | "--root", *rest]:
            flux(rest)
        case ["queue", "list", "-n", "-o", _]:
            print("batch*|y|y|1800.0|inf|0-inf|0|inf|0-inf")
        case ["resource", "list", *_]:
            print("all|3|12|0|n[1-3]")
        case ["batch", *rest]:
            log = next(word for word in rest if word.startswith("--output=")).removeprefix("--output=")
            print(flux_id(hand_over(log, pathlib.Path(rest[-1]).read_text(), "flux")))
        case ["hostlist", *_]:
            print("\n".join(os.environ["FAKE_HOSTS"].split()))
        case ["run", *rest]:
            count = int(next(word for word in rest if word.startswith("--ntasks=")).removeprefix("--ntasks="))
            tasks = [
                subprocess.Popen(rest[rest.index("bash") :], env={**os.environ, "FLUX_TASK_RANK": str(task)})
                for task in range(count)
            ]
            codes, since = [], None
            while len(codes) < count:
                codes = [task.poll() for task in tasks if task.poll() is not None]
                if any(codes) and since is None:
                    since = time.monotonic()
                if since is not None and time.monotonic() - since > 5:  # -o exit-timeout=5s
                    for task in tasks:
                        task.terminate()
                time.sleep(0.1)
            sys.exit(max(codes))
        case ["jobs", "-n", "-o", _, *numbers]:
            for job in jobs(numbers):
                code, nodes = state(job), "127.0.0.[1-2]"
                fields = ["RUN", "", nodes, nodes, "", "", "", "", "", "", "", "0.0"]
                if code != "running":
                    result = "COMPLETED" if code == "0" else "FAILED"
                    fields = ["INACTIVE", result, nodes, nodes, "False", "", "", "", f"Exit {code}", code, ""]
                    fields.append(f"{time.time():.6f}")
                print("|".join([flux_id(job.name), *fields]))
        case ["cancel", *rest]:
            end(rest)
        case _:
            sys.exit(f"flux: the fake knows nothing of {words}")


if __name__ == "__main__":
    name, *words = pathlib.Path(sys.argv[0]).name, *sys.argv[1:]
    if words[:1] == ["run"] and name == "fake_queue.py":
        run(*words[1:])
    elif name in ("pbs_tmrsh", "blaunch"):
        on_host(words[2:] if words[0] == "-z" else words[1:])
    elif name in ("qdel", "bkill"):
        end(words)
    elif name == "lsid":
        print("IBM Spectrum LSF Standard 10.1.0.0, Jul 08 2016")
    elif name == "bqueues":
        print("normal|Open:Active|-")
    elif name != "pbsnodes":
        globals()[name](words)
