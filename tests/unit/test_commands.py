"""Which file an interpreter's command runs."""

import pytest

from bareboat import commands


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("python train", "train"),
        ("/usr/bin/python3.12 -uB -X dev -Wignore -W error train.py --c", "train.py"),
        ("pypy3 -Xdev a.pyz", "a.pyz"),
        ("env A=1 nice -n 5 python a.py", "a.py"),
        ("python -m a.py b.py", None),
        ("python -um a.py", None),
        ("python -cpass a.py", None),
        ("python -i a.py", None),
        ("python --version a.py", None),
        ("python - a.py", None),
        ("python -- -a.py", "-a.py"),
        ("python", None),
        ("env -C /x python a.py", None),
        ("env --chdir=/x python a.py", None),
        ("bash a.sh b.sh", "a.sh"),
        ("bash -l -euxo pipefail --norc a.sh", "a.sh"),
        ("sh -c a.sh", None),
        ("bash -lc a.sh", None),
        ("bash -s a.sh", None),
        ("zsh +o x a", "a"),
        ("Rscript --vanilla a.R 5", "a.R"),
        ("Rscript -e 1 a.R", None),
        ("perl -w -Ilib -I lib a.pl", "a.pl"),
        ("perl -pe s/a/b/ a.txt", None),
        ("perl -S a.pl", None),
        ("julia --project=. -t 4 --threads 2 -O3 a.jl", "a.jl"),
        ("julia -e 1 a.jl", None),
        ("julia --unknown a.jl", None),
        ("ruby -rjson a.rb", "a.rb"),
        ("lua5.4 -l x a.lua", "a.lua"),
        ("torchrun --standalone --nproc_per_node 2 --nnodes=2 a.py", "a.py"),
        ("torchrun -m a.py", None),
        ("torchrun a", None),
        ("node -r x --max-old-space-size=9 a.mjs", "a.mjs"),
        ("node a", None),
        ("node -e a.js", None),
        ("./solver a.py", None),
        ("cat a.py", None),
        ("", None),
    ],
)
def test_the_file_that_an_interpreter_runs(line: str, file: str | None) -> None:
    assert commands.file(line.split()) == file
