"""Parts of the contract (tests/contract/test_engine*.py, by test) that an engine does not keep, and why."""

from collections.abc import Mapping

_READING = "test_ranks_of_two_containers_read_each_other_s_memory"

#: Every engine that makes a user namespace: the kernel requires CAP_SYS_PTRACE in the other's.
#: https://man7.org/linux/man-pages/man2/ptrace.2.html ("Ptrace access mode checking")
_ALONE_IN_NAMESPACE = {
    _READING: "each container has its own user namespace, and the kernel does not let a process read the "
    "memory of a process in another one (CMA): ranks in separate containers must copy through /dev/shm"
}
#: Every engine whose containers are guarded by Landlock, each by rules of its own.
#: https://docs.kernel.org/userspace-api/landlock.html#ptrace-restrictions
_GUARDED_APART = {
    _READING: "Landlock, which protects the image, does not let a process read memory outside its own "
    "container"
}
_LIMITS: Mapping[str, Mapping[str, str]] = {
    "apptainer": _ALONE_IN_NAMESPACE,
    "bubblewrap": _ALONE_IN_NAMESPACE,
    "charliecloud": _ALONE_IN_NAMESPACE,
    "podman": {
        "test_an_open_file_of_the_caller_reaches_the_command": "only the standard streams are passed on, so "
        "MPICH's mpiexec cannot start ranks from outside (PMI_FD)",
        "test_a_terminal_is_passed_to_the_command": "a terminal requires /dev/console, which belongs to root "
        "in the host's /dev: programs see pipes",
        **_ALONE_IN_NAMESPACE,
    },
    "udocker": _GUARDED_APART,
}
#: Other names of a program.
_SAME = {"singularity": "apptainer", "podman-hpc": "podman"}


def limits(engine: str) -> Mapping[str, str]:
    """Test -> reason."""
    name = engine.partition(":")[0]
    return _LIMITS.get(_SAME.get(name, name), {})
