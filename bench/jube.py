"""The same matrix by JUBE and by `bareboat prove`: lines of configuration, time, and what comes out.

    python bench/jube.py [--repeats 5] [--markdown]        # needs Debian's jube and bubblewrap

Two kinds x three sizes x two arms (bare metal, container) of a small program that prints its speed. Times:
before the first run and after the last one, and between two runs. JUBE starts `bwrap` on the host's files;
Bareboat captures the environment and starts it in bubblewrap.
"""

import argparse
import csv
import io
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """\
import sys, time
began = time.time()
size = int(sys.argv[2])
work = (lambda: sum(range(size))) if sys.argv[1] == "sum" else (lambda: sorted(range(size, 0, -1)))
for number in range(20):
    work()
seconds = time.time() - began
print(f"speed: {20 * size / seconds:.1f} items/s")
with open(sys.argv[3], "a") as log:
    log.write(f"{began} {began + seconds}\\n")
"""
JUBE = """\
<jube>
  <benchmark name="matrix" outpath="bench_run">
    <parameterset name="points">
      <parameter name="kind">sum,sorted</parameter>
      <parameter name="size" type="int">50000,100000,200000</parameter>
      <parameter name="arm">bare,container</parameter>
      <parameter name="start" mode="python">
        {"bare": "", "container": "bwrap --bind / / --dev /dev --proc /proc --unshare-pid"}["$arm"]
      </parameter>
    </parameterset>
    <fileset name="files"><copy>program.py</copy></fileset>
    <step name="run" iterations="@REPEATS@">
      <use>points,files</use>
      <do>$start @PYTHON@ program.py $kind $size @LOG@</do>
    </step>
    <patternset name="patterns">
      <pattern name="speed" type="float">speed: $jube_pat_fp</pattern>
    </patternset>
    <analyser name="analysis">
      <use>patterns</use>
      <analyse step="run"><file>stdout</file></analyse>
    </analyser>
    <result>
      <use>analysis</use>
      <table name="speeds" style="csv" sort="kind,size,arm">
        <column>kind</column>
        <column>size</column>
        <column>arm</column>
        <column>speed_avg</column>
        <column>speed_std</column>
      </table>
    </result>
  </benchmark>
</jube>
"""
STUDY = """\
command = ["python", "program.py", "{kind}", "{size}", "@LOG@"]
[arms]
bare = {engine = "native"}
container = {engine = "bubblewrap"}
[sweep]
kind = ["sum", "sorted"]
size = [50000, 100000, 200000]
[metrics.speed]
pattern = 'speed: ([0-9.]+)'
[prove]
repeats = @REPEATS@
"""


def spent_s(log: Path) -> tuple[int, float, float]:
    """The runs of the program, its own seconds, and those from its first start to its last end."""
    times = [tuple(map(float, line.split())) for line in log.read_text().splitlines()]
    log.unlink()
    own = sum(ended - began for began, ended in times)
    return len(times), own, max(ended for _, ended in times) - min(began for began, _ in times)


def timed(argv: list[str], folder: Path) -> float:
    began = time.monotonic()
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{argv}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    for program in ("jube", "bwrap"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed; try: sudo apt-get install jube bubblewrap")
    bareboat = str(Path(sys.executable).with_name("bareboat"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
        python = str(folder / "env" / "bin" / "python")
        values = {"@REPEATS@": str(options.repeats), "@PYTHON@": python, "@LOG@": str(log)}

        def write(file: str, text: str) -> int:
            for key, value in values.items():
                text = text.replace(key, value)
            (folder / file).write_text(text)
            return sum(bool(line.strip()) for line in text.splitlines())

        write("program.py", PROGRAM)
        lines = {"JUBE": write("matrix.xml", JUBE), "Bareboat": write("study.toml", STUDY)}
        store = ["--store", str(folder / "store")]
        timed([bareboat, "image", "capture", "--python", python, *store], folder)  # once for an environment
        rows = []
        whole = {"JUBE": timed(["jube", "run", "matrix.xml", "-a", "-r"], folder)}
        own = {"JUBE": spent_s(log)}
        whole["Bareboat"] = timed([bareboat, "prove", "study.toml", "--python", python, *store], folder)
        own["Bareboat"] = spent_s(log)
        (table,) = folder.glob("bench_run/*/result/speeds.dat")
        head = next(csv.reader(io.StringIO(table.read_text())))
        out = {
            "JUBE": f"a table: {', '.join(head)}",
            "Bareboat": "report.html: ratio, interval and verdict of each point, pooled ratio, every run",
        }
        for tool, seconds in whole.items():
            runs, program_s, all_s = own[tool]
            around = f"{(all_s - program_s) / (runs - 1):.2f}"
            rows.append(
                (
                    tool,
                    str(lines[tool]),
                    str(runs),
                    f"{seconds - all_s:.1f}",
                    around,
                    f"{seconds:.1f}",
                    out[tool],
                )
            )
    names = ("tool", "lines", "runs", "before and after, s", "between runs, s", "whole, s", "what comes out")
    if options.markdown:
        for row in (names, ("---",) * len(names), *rows):
            print(f"| {' | '.join(row)} |")
        return
    for row in (names, *rows):
        print("  ".join(cell.ljust(18) for cell in row))


if __name__ == "__main__":
    main()
