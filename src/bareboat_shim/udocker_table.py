"""What the shim of udocker understands.

The command line is that of udocker 1.3: https://indigo-dc.github.io/udocker/user_manual.html
"""

from __future__ import annotations

from bareboat_shim.table import Flag, Table, Verb

VERSION = "1.3.17"

_PORTS = "the network is the host's: connect to the container's own port"
_STORE = "images and containers are in Bareboat's store: see bareboat config"
_HUB = "only pull and run contact registries"
_ACCOUNTS = "log in with a tool that writes ~/.docker/config.json, which is read"
_COPIES = "copy the image instead: create makes a new container of it"
_ONE = "there is one mode, and one platform"
_NO_HOST = "the host's name is kept: MPI and schedulers use it"
_DIRECTORIES = "every container has /dev, /proc and /sys"

_REGISTRY = (
    Flag(("--registry",), "URL", "the registry of a name without a host; http:// is plain HTTP"),
    Flag(("--index",), "URL", meaning="no effect: the index is for searches"),
    Flag(("--httpproxy",), "URL", refused="set https_proxy"),
    Flag(("--platform",), "OS/ARCH", "this machine's only"),
)
_RUN = (
    Flag(("--volume", "-v"), "SRC[:DEST]", "mount a file or directory", several=True),
    Flag(("--novol",), "SRC", "leave out a volume", several=True),
    Flag(("--env", "-e"), "NAME[=VALUE]", "set an environment variable", several=True),
    Flag(("--env-file",), "FILE", "the variables of a file; those of the image have priority", several=True),
    Flag(("--workdir", "-w"), "DIR", "the working directory in the container"),
    Flag(("--user", "-u"), "USER", "the user, by name or ID (default: the image's, or root)"),
    Flag(("--entrypoint",), "COMMAND", "instead of the image's ENTRYPOINT and CMD"),
    Flag(("--hostauth",), meaning="the users and groups of the host"),
    Flag(("--containerauth",), meaning="the users and groups of the image"),
    Flag(("--hostenv",), meaning="pass on the shell's environment variables"),
    Flag(("--bindhome",), meaning="mount the home directory"),
    Flag(("--nometa",), meaning="leave out what the image sets: variables, command, user, directory"),
    Flag(("--dri",), meaning="mount the directories of direct rendering"),
    Flag(("--cpuset-cpus",), "LIST", "the processors for the command"),
    Flag(("--name",), "NAME", "the name of the new container, which keeps changes"),
    Flag(("--rm",), meaning="remove the container at its end"),
    Flag(("--location",), "DIR", "a directory as the root file system, in which changes stay"),
    Flag(("--pull",), "WHEN", "missing, never, always or reuse"),
    Flag(("--nobanner",), meaning="no effect: there is no banner"),
    Flag(("--interactive", "-i"), meaning="no effect: the terminal is passed on"),
    Flag(("--tty", "-t"), meaning="no effect: the terminal is passed on"),
    Flag(("-a",), meaning="no effect: the terminal is passed on"),
    Flag(("--device",), "PATH", meaning="no effect: /dev is the machine's", several=True),
    *_REGISTRY,
    Flag(("--publish", "-p"), "PORT:PORT", refused=_PORTS, several=True),
    Flag(("--publish-all", "-P", "--netcoop"), refused=_PORTS),
    Flag(("--nosysdirs",), refused=_DIRECTORIES),
    Flag(("--kernel",), "VERSION", refused="the kernel is the host's"),
    Flag(("--volumes-from",), "NAME", refused="mount the directories with --volume"),
    Flag(("--dns",), "ADDRESS", refused="the host's resolv.conf is used"),
    Flag(("--dns-search",), "DOMAIN", refused="the host's resolv.conf is used"),
    Flag(("--hostname", "-h"), "NAME", refused=_NO_HOST),
    Flag(("--domainname",), "NAME", refused=_NO_HOST),
)  # fmt: skip

TABLE = Table(
    names=("udocker",),
    version=VERSION,
    prefixes=(),
    flags=(
        Flag(("--quiet", "-q"), meaning="show errors only"),
        Flag(("--debug", "-D"), meaning="no effect"),
        Flag(("--allow-root",), meaning="no effect: root may call a shim"),
        Flag(("--insecure",), refused="use --registry=http://HOST for a registry without TLS"),
        Flag(("--repo",), "DIR", refused=_STORE),
        Flag(("--config",), "FILE", refused="the settings are those of Bareboat: bareboat config"),
        Flag(("--help", "-h"), meaning="print what is supported"),
        Flag(("--version", "-V"), meaning="print the version of udocker whose command line this is"),
    ),
    verbs=(
        Verb("pull", "[FLAGS] IMAGE", "pull an image into the store", flags=_REGISTRY, least=1),
        Verb("create", "[FLAGS] IMAGE", "copy an image into a container that keeps changes; print its ID",
             flags=(Flag(("--name",), "NAME", "the name of the container"),
                    Flag(("--force",), meaning="also where another container has the name"), *_REGISTRY),
             least=1),
        Verb("run", "[FLAGS] CONTAINER|IMAGE [COMMAND [ARGUMENTS]]",
             "run a command in a container, or in an image, whose changes are then discarded",
             flags=_RUN, own=1),
        Verb("setup", "[FLAGS] CONTAINER", "select how a container runs",
             flags=(Flag(("--execmode",), "MODE", "no effect: bubblewrap is used in place of the modes"),
                    Flag(("--nvidia",), meaning="mount NVIDIA's driver in each run of this container"),
                    Flag(("--force",), meaning="no effect"),
                    Flag(("--purge",), meaning="no effect: mounts leave nothing behind"),
                    Flag(("--fixperm",), meaning="no effect: the files are yours")), least=1),
        Verb("ps", "[FLAGS]", "list the containers",
             flags=(Flag(("-m", "-p"), refused=_ONE),
                    Flag(("-s",), refused="use du -s on the directory that inspect -p prints"))),
        Verb("images", "[FLAGS]", "list the images",
             flags=(Flag(("-l",), refused="use bareboat image show"),
                    Flag(("-p",), refused=_ONE),
                    Flag(("--no-trunc",), meaning="no effect"), Flag(("--all",), meaning="no effect"))),
        Verb("rm", "[FLAGS] CONTAINER…", "remove containers",
             flags=(Flag(("--force", "-f"), meaning="no effect"),), least=1),
        Verb("rmi", "[FLAGS] IMAGE", "remove the name of an image, and the image with its last one",
             flags=(Flag(("-f",), meaning="no effect"),), least=1),
        Verb("inspect", "[FLAGS] CONTAINER|IMAGE", "print the configuration as JSON",
             flags=(Flag(("-p",), meaning="print the directory of the root file system"),), least=1),
        Verb("name", "CONTAINER NAME", "give a container another name", least=2),
        Verb("rename", "NAME NAME", "change a container's name", least=2),
        Verb("rmname", "NAME", "remove a container's name", least=1),
        Verb("tag", "IMAGE NAME", "give an image another name", least=2),
        Verb("load", "-i FILE", "load an image that docker save wrote",
             flags=(Flag(("--input", "-i"), "FILE", "the file"),)),
        Verb("save", "-o FILE IMAGE", "write an image as a Docker archive",
             flags=(Flag(("--output", "-o"), "FILE", "the file"),), least=1),
        Verb("verify", "IMAGE", "compare an image's files with their digests", least=1),
        Verb("install", "[FLAGS]", "no effect: Bareboat is installed",
             flags=(Flag(("--force",), meaning="no effect"), Flag(("--purge",), meaning="no effect"))),
        Verb("version", meaning="print the version of udocker whose command line this is"),
        Verb("help", "[COMMAND]", "print what is supported"),
        Verb("mkrepo", refused=_STORE),
        Verb("showconf", refused="the settings are those of Bareboat: bareboat config"),
        Verb("search", refused=_HUB),
        Verb("manifest", refused=_HUB),
        Verb("login", refused=_ACCOUNTS),
        Verb("logout", refused=_ACCOUNTS),
        Verb("import", refused="use bareboat image pull rootfs:DIR, or load"),
        Verb("export", refused="use tar on the directory that inspect -p prints"),
        Verb("clone", refused=_COPIES),
        *(Verb(name, refused="rm and rmi remove only what you name") for name in ("protect", "unprotect")),
    ),
    code=1,
    fatal=1,
    error="Error: ",
)  # fmt: skip
