"""What other tools write into a root file system about the image's process and variables."""

from pathlib import Path

from bareboat.model import Image, Process
from bareboat_images.formats import enroot, squash
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


RC = """\
# org.label value

mkdir -p "/work dir" 2> /dev/null
cd "/work dir" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec '/entry' 'two words' "$@"
else
    exec '/entry' 'two words' 'python' '-m' 'x'
fi
"""


def test_the_process_of_an_image_that_enroot_imported(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "rc").write_text(RC)
    (etc / "rc.local").write_text("# This file is sourced.\n")
    (etc / "environment").write_text("PATH=/opt/bin:/bin\nA=x=y z\nB.C=\f2\nno variable\nno name=1\n")
    facts = read_facts(str(tmp_path), made_from="a squashfs", architecture="amd64")
    assert facts.environment == {"PATH": "/opt/bin:/bin", "A": "x=y z", "B.C": "\f2"}
    assert (facts.entrypoint, facts.command) == (("/entry", "two words"), ("python", "-m", "x"))
    assert (facts.workdir, facts.notes) == ("/work dir", ())


def test_what_a_changed_start_script_of_enroot_does_is_reported(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "rc").write_text(RC.replace("if [ -s", "export LATER=$PATH:/x\nif [ -s"))
    (etc / "rc.local").write_text("ulimit -l unlimited\n")
    (note,) = read_facts(str(tmp_path), made_from="a squashfs", architecture="amd64").notes
    assert "/etc/rc: export LATER=$PATH:/x" in note
    assert "/etc/rc.local: ulimit -l unlimited" in note


def test_other_files_of_these_names_are_not_those_of_enroot(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "rc").write_text("#!/bin/sh\nexec /sbin/init\n")
    (etc / "environment").write_text("A=of pam\n")
    facts = read_facts(str(tmp_path), made_from="a squashfs", architecture="amd64")
    assert "A" not in facts.environment
    assert (facts.entrypoint, facts.command, facts.workdir, facts.notes) == ((), ("/bin/sh",), "/", ())


def test_the_process_of_a_saved_container_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/environment").symlink_to("/no/such")
    process = Process(entrypoint=("/a b", "$x"), command=("c",), workdir="/w")
    image = Image(digest="", layers=(), environment={"A": "1"}, process=process, reference="")
    enroot.write(tmp_path, image)
    facts = read_facts(str(tmp_path), made_from="a squashfs", architecture="amd64")
    assert (facts.entrypoint, facts.command, facts.workdir) == (("/a b", "$x"), ("c",), "/w")
    assert facts.environment["A"] == "1"
