"""Take pictures of a report with Chromium: python docs/tools/screenshot.py REPORT.html PICTURE.png

The second one, PICTURE-dark.png, is as the page is shown in the dark.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH, HEIGHT = 1200, 900
#: Chromium's numbers of the colour schemes.
DARK, LIGHT = 0, 1


def main(report: Path, picture: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed; on Debian: apt-get install chromium")
    dark = picture.with_name(f"{picture.stem}-dark{picture.suffix}")
    for scheme, target in ((LIGHT, picture), (DARK, dark)):
        with tempfile.TemporaryDirectory(prefix="bareboat-picture-") as profile:
            subprocess.run(
                [
                    chromium, "--headless", "--disable-gpu", "--hide-scrollbars",
                    f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND",
                    f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={WIDTH},{HEIGHT}",
                    f"--screenshot={target.resolve()}", report.resolve().as_uri(),
                ],
                check=True,
                timeout=120,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        print(f"{target}: {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
