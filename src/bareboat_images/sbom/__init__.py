"""SBOM: a list of the software in an image, from the databases of its package managers.

    inventory    all packages of an image, and what could not be read
    package      one package, and its package URL
    stanzas      dpkg, apk and R: files of fields
    rpmdb        rpm's database, if it is SQLite
    python       Python distributions, conda packages
    owners       the package of each file
    cyclonedx    the list as CycloneDX 1.6
    spdx         the list as SPDX 2.3

All input is untrusted: it is read through `View`, which follows links inside the image only, with limits on
sizes, and control characters are removed. A damaged database becomes one warning in the list.
"""
