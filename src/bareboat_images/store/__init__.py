"""All paths that Bareboat writes: layers, images, captures, runs. Content-addressed, never half-written.

    layers/sha256/HEX/       a layer, named by the digest of its tar: tree/, layer.json, and a recipe where
                             the tar differs from the canonical one of the tree
    parts/sha256/HEX         a partial download, kept to resume it
    flat/sha256/HEX/         an unpacked image: a tree of hard links
    roots/sha256/HEX/KEY/    the tree of jobs with mounts on paths that the image lacks: tree/, with the mount
                             points, and how it is made of the flat tree
    relinked/sha256/HEX/     the same with relative links, for engines that cannot mount
    packed/sha256/HEX/       an image as one file: image.sif, image.squashfs, or image.tar for compute nodes,
                             with image.KIND.json about it; own/KEY/: for jobs with mounts on paths that the
                             image lacks
    blobs/sha256/HEX         image manifests and configs, indexes that pins need, and compressed layers that
                             the user kept
    images/sha256/HEX.json   facts about an image
    captures/HEX.json        fingerprint of an environment -> digest of its image
    names/NAME[:TAG]         a name -> digest
    pins/HEX.json            the image that a reference referred to when it was pulled
    identities/HEX/          etc/passwd and etc/group of an image with the user's lines added
    drivers/HEX/             links to the files of a GPU driver, as a container sees them
    leases/                  processes that download something
    programs/HEX/            programs of Bareboat that compute nodes need
    sites/NAME.json          facts about compute nodes
    facts/HOST-NAME.json     what is known of engines and launchers on a machine
    host-libraries/HEX.json  the libraries that a host's MPI library loads
    host-mpis/HEX/           links to an MPI of the host, made for an image
    mpi-checks/HEX.json      MPI check results of this site; mpi-checks/pending/RUN: results to come
    builds/steps/HEX.json    the result of a step of a build, by what it depends on
    builds/metadata/HEX.json owners and modes of a layer's entries that its tree cannot have
    builds/mounts/HEX/       a directory of RUN --mount=type=cache
    builds/downloads/        files that ADD downloaded
    kernel-caches/HEX/KEY/   compiled GPU kernels of an image's jobs in a project: an archive for each kind of
                             node; studies/KEY/: of an arm of a study
    instances/ID/            a container that keeps changes: root/, its root file system, and instance.json
    runs/ID/                 one run, one sweep, or one study (matrix.json)
    runs/ID/points/N/        the run ID.N: a point of a sweep, or of a study: study.json, NNNN/ARM.json
    by-hand/NAME-JOB/        the same for a script that was submitted by hand
    tmp/                     work in progress, renamed into place when complete
group                    the name of the group that owns this store (access.py): it holds images; all other
                             data is in each member's own store

An entry becomes visible by one rename, so a reader sees all of it or nothing. A killed writer leaves only
files under tmp/, which the next one removes.
"""

from __future__ import annotations

from bareboat_images.store.files import claims as claims
from bareboat_images.store.images import Images
from bareboat_images.store.owners import is_dead as is_dead
from bareboat_images.store.owners import owner as owner
from bareboat_images.store.owners import owner_of as owner_of
from bareboat_images.store.paths import FILE_KINDS as FILE_KINDS
from bareboat_images.store.runs import Runs


class Store(Images, Runs):
    """A store. Opening it writes nothing; the first write creates it and logs its path and the reason
    `chosen_because`."""
