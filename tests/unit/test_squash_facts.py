"""A SIF built from a definition file on a Docker image: what it sets itself is above what the image sets."""

from __future__ import annotations

from pathlib import Path

from bareboat_images.formats import squash
from bareboat_images.formats.rootfs import read_facts

ENVIRONMENT = (
    "#!/bin/sh\n    export PATH=/opt/env/bin:$PATH\n    export PATH=/opt/mpi/bin:$PATH\n    export A=own\n"
)


def test_variables_of_the_definition_are_above_those_of_its_base(tmp_path: Path) -> None:
    scripts = tmp_path / ".singularity.d" / "env"
    scripts.mkdir(parents=True)
    (scripts / "10-docker2singularity.sh").write_text(
        '#!/bin/sh\nexport PATH="/bin"\nexport B="${B:-"base"}"\n'
    )
    (scripts / "90-environment.sh").write_text(ENVIRONMENT)
    facts = read_facts(str(tmp_path), made_from="a SIF", architecture="amd64")
    found = squash._from_oci(b'{"Env": ["PATH=/bin", "A=base", "B=base"]}', facts, "x")
    assert found.environment == {"PATH": "/opt/mpi/bin:/opt/env/bin:/bin", "A": "own", "B": "base"}
