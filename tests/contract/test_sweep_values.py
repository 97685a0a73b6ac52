"""A sweep's values in every engine: as words of the command and as variables, whatever they hold."""

import json
import os
import subprocess

from engine_lab import Lab

from bareboat.model import sweep
from bareboat.model.sweep import Sweep

ODD = "a 'b' \"c\" $(touch oops) `d` ${HOME} \\ |\t\n é日 \x01*"
TELLS = (
    "import json, os, sys; "
    "print(json.dumps([sys.argv[1:], {k: v for k, v in os.environ.items() if 'SWEEP' in k or k == 'TAG'}]))"
)


def test_a_point_s_values_come_through_as_they_are(lab: Lab) -> None:
    points = Sweep(names=("odd", "empty", "lr"), points=(("", "", "1"), (ODD, "", "0.1")))
    script = lab.script(
        "python", "-c", TELLS.replace("{", "{{").replace("}", "}}"), "{odd}", "{empty}", "--lr={lr}", "{{}}",
        "{index}", environment={"TAG": "<{odd}>"}, sweep=points,
    )  # fmt: skip
    (lab.workdir.parent / "table").write_bytes(sweep.table(points))
    folder = lab.workdir.parent / "points" / "1" / "control"
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["bash", script, "sweep.1"], env={**os.environ, "BAREBOAT_CONTROL": str(folder)},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    arguments, variables = json.loads(done.stdout)
    assert arguments == [ODD, "", "--lr=0.1", "{}", "1"]
    assert variables == {
        "BAREBOAT_SWEEP_INDEX": "1", "BAREBOAT_SWEEP_ODD": ODD, "BAREBOAT_SWEEP_EMPTY": "",
        "BAREBOAT_SWEEP_LR": "0.1", "TAG": f"<{ODD}>",
    }  # fmt: skip
    assert not list(lab.workdir.iterdir())
