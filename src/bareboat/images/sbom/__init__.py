"""SBOM: a list of the software in an image, from what its package managers left in its tree.

    inventory    all packages of an image, and what could not be read
    package      one package, and its package URL
    stanzas      dpkg, apk and R: files of fields
    rpmdb        rpm's database, where it is SQLite
    python       Python distributions, conda packages
    cyclonedx    the list as CycloneDX 1.6
    spdx         the list as SPDX 2.3

Everything read is a stranger's: through `View`, which follows links inside the image only, with limits on
sizes, and without control characters. A database that is damaged is one warning in the list.
"""
