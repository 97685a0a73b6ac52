"""What the shim of Apptainer and Singularity understands.

The command line is that of Apptainer 1.4: https://apptainer.org/docs/user/main/cli.html
"""

from __future__ import annotations

from bareboat_shim.table import Flag, Table, Verb

#: The version that the shim reports. Programs compare it, to decide which flags they may use.
VERSION = "1.4.5"

_ROOT = "it requires root"
_LIMITS = "limits are the scheduler's: request memory and processors there"
_SECRETS = "encrypted images are not supported"
_LOG_IN = "log in with a tool that writes ~/.docker/config.json, which is read"
_CAPABILITIES = "a container has no capabilities outside its user namespace"

#: Flags of exec, run and shell.
_CONTAINER = (
    Flag(("--bind", "-B"), "SRC[:DEST[:OPTS]]", "mount files and directories; `ro` and `rw` are the options",
         variables=("BIND", "BINDPATH"), several=True),
    Flag(("--mount",), "type=bind,src=…,dst=…[,ro]", "the same in another form", variables=("MOUNT",),
         several=True),
    Flag(("--cleanenv", "-e"), meaning="leave the shell's environment variables out",
         variables=("CLEANENV",)),
    Flag(("--contain", "-c"),
         meaning="empty directories in memory for the home directory, /tmp and /var/tmp; /dev "
         "stays the machine's", variables=("CONTAIN",)),
    Flag(("--containall", "-C"), meaning="--contain --cleanenv --ipc --pid", variables=("CONTAINALL",)),
    Flag(("--compat",), meaning="--containall --no-init --no-umask --no-eval --writable-tmpfs",
         variables=("COMPAT",)),
    Flag(("--pwd", "--cwd"), "DIR", "the working directory in the container", variables=("PWD", "CWD")),
    Flag(("--env",), "NAME=VALUE[,…]", "set environment variables", several=True),
    Flag(("--env-file",), "FILE", "set the variables of a file with lines NAME=VALUE",
         variables=("ENV_FILE",),
         several=True),
    Flag(("--home", "-H"), "SRC[:DEST]", "another home directory", variables=("HOME",)),
    Flag(("--no-home",), meaning="do not mount the home directory, unless it is the working directory",
         variables=("NO_HOME",)),
    Flag(("--no-mount",), "NAME[,…]", "leave out home, tmp or cwd; proc, sys and dev are refused",
         variables=("NO_MOUNT",), several=True),
    Flag(("--nv",), meaning="NVIDIA's driver, where the machine has it", variables=("NV",)),
    Flag(("--rocm",), meaning="AMD's driver, where the machine has it", variables=("ROCM",)),
    Flag(("--pid", "-p"), meaning="a process ID namespace", variables=("PID", "UNSHARE_PID")),
    Flag(("--ipc", "-i"), meaning="an IPC namespace", variables=("IPC", "UNSHARE_IPC")),
    Flag(("--uts",), meaning="a UTS namespace", variables=("UTS", "UNSHARE_UTS")),
    Flag(("--net", "-n"), meaning="with --network none only: no network", variables=("NET", "UNSHARE_NET")),
    Flag(("--network",), "none", "with --net", variables=("NETWORK",)),
    Flag(("--scratch", "-S"), "DIR", "an empty directory, in memory or in --workdir",
         variables=("SCRATCH", "SCRATCHDIR"),
         several=True),
    Flag(("--workdir", "-W"), "DIR", "the directory that --contain and --scratch use instead of memory",
         variables=("WORKDIR",)),
    Flag(("--writable-tmpfs",), meaning="allow changes everywhere, and discard them",
         variables=("WRITABLE_TMPFS",)),
    Flag(("--overlay", "-o"), "DIR[:ro]", "keep changes to the root file system in a directory",
         variables=("OVERLAY", "OVERLAYIMAGE"), several=True),
    Flag(("--no-https", "--nohttps"), meaning="use plain HTTP for the registry",
         variables=("NOHTTPS", "NO_HTTPS")),
    Flag(("--no-eval",), meaning="variables and commands of OCI images are never evaluated",
         variables=("NO_EVAL",)),
    Flag(("--no-init",), meaning="no effect", variables=("NO_INIT", "NOSHIMINIT")),
    Flag(("--no-pid",), meaning="no process ID namespace", variables=("NO_PID",)),
    Flag(("--no-privs",), meaning="no effect: there are none", variables=("NO_PRIVS",)),
    Flag(("--no-umask",), meaning="the umask 0022 instead of the shell's", variables=("NO_UMASK",)),
    Flag(("--userns", "-u"), meaning="no effect: there is always one",
         variables=("USERNS", "UNSHARE_USERNS")),
    Flag(("--disable-cache",), meaning="no effect: the store is no cache", variables=("DISABLE_CACHE",)),
    Flag(("--unsquash",), meaning="no effect: images are directories", variables=("UNSQUASH",)),
    Flag(("--tmp-sandbox", "--no-tmp-sandbox"), meaning="no effect: images are directories",
         variables=("TMP_SANDBOX",)),
    Flag(("--underlay",), meaning="no effect: overlays are used", variables=("UNDERLAY",)),
    Flag(("--writable", "-w"),
         refused="images do not change; for changes that are discarded: --writable-tmpfs",
         variables=("WRITABLE",)),
    Flag(("--fakeroot", "-f"), refused="commands run as you; images are built with bareboat image build",
         variables=("FAKEROOT",)),
    Flag(("--app",), "NAME", refused="SCIF applications are not supported; call the program by its path",
         variables=("APP", "APPNAME")),
    Flag(("--hostname",), "NAME", refused="the host's name is kept: MPI and schedulers use it",
         variables=("HOSTNAME",)),
    Flag(("--dns",), "ADDRESS", refused="the host's resolv.conf is used", variables=("DNS",)),
    Flag(("--network-args",), "ARGS", refused="network plug-ins require root", variables=("NETWORK_ARGS",)),
    Flag(("--netns-path",), "PATH", refused=_ROOT, variables=("NETNS_PATH",)),
    Flag(("--nvccli",), refused="use --nv", variables=("NVCCLI",)),
    Flag(("--fusemount",), "SPEC", refused="mount the file system on the host, and use --bind",
         variables=("FUSESPEC",)),
    Flag(("--sharens",), refused="each call has namespaces of its own", variables=("SHARENS",)),
    Flag(("--apply-cgroups",), "FILE", refused=_LIMITS, variables=("APPLY_CGROUPS",)),
    *(Flag((f"--{name}",), "N", refused=_LIMITS, variables=(name.upper().replace("-", "_"),)) for name in (
        "memory", "memory-reservation", "memory-swap", "cpus", "cpu-shares", "cpuset-cpus", "cpuset-mems",
        "blkio-weight", "blkio-weight-device", "pids-limit")),
    Flag(("--oom-kill-disable",), refused=_LIMITS, variables=("OOM_KILL_DISABLE",)),
    Flag(("--add-caps",), "LIST", refused=_CAPABILITIES, variables=("ADD_CAPS",)),
    Flag(("--drop-caps",), "LIST", refused=_CAPABILITIES, variables=("DROP_CAPS",)),
    Flag(("--keep-privs",), refused=_ROOT, variables=("KEEP_PRIVS",)),
    Flag(("--allow-setuid",), refused=_ROOT, variables=("ALLOW_SETUID",)),
    Flag(("--security",), "OPTION", refused=_ROOT, variables=("SECURITY",)),
    Flag(("--passphrase",), refused=_SECRETS, variables=("PASSPHRASE",)),
    Flag(("--pem-path",), "FILE", refused=_SECRETS, variables=("PEM_PATH", "ENCRYPTION_PEM_PATH")),
    Flag(("--docker-login",), refused=_LOG_IN, variables=("DOCKER_LOGIN",)),
    Flag(("--docker-host",), "HOST", refused="no daemon is used", variables=("DOCKER_HOST",)),
    Flag(("--authfile",), "FILE", refused=_LOG_IN, variables=("AUTHFILE",)),
)  # fmt: skip

_SHELL = Flag(("--shell", "-s"), "PATH", "the shell to start", variables=("SHELL",))
_FORCE = Flag(("--force", "-F"), meaning="replace the file", variables=("FORCE",))
_ARCHITECTURE = Flag(("--arch",), "NAME", "the machine architecture", variables=("PULL_ARCH",))
_INTO = Flag(("--dir",), "DIR", "the directory for the file", variables=("PULLDIR", "PULLFOLDER"))
_NO_HTTPS = next(flag for flag in _CONTAINER if flag.key == "no-https")
_NO_CACHE = next(flag for flag in _CONTAINER if flag.key == "disable-cache")
_OF_LOG_IN = tuple(flag for flag in _CONTAINER if flag.key in ("docker-login", "docker-host", "authfile"))
_OF_LIBRARIES = "library://, shub:// and oras:// are not supported"

_BUILD = (
    _FORCE, _NO_HTTPS, _NO_CACHE,
    Flag(("--fakeroot", "-f"), meaning="no effect: builds need no root"),
    Flag(("--sandbox", "-s"), refused="it writes a directory; build a SIF file, or use bareboat image build"),
    Flag(("--build-arg",), "NAME=VALUE", "the value of a variable of the definition file", several=True),
    Flag(("--notest", "-T"), meaning="no effect: %test does not run"),
    Flag(("--bind", "-B"), "SPEC", refused="builds see no files of the machine but those of %files"),
    Flag(("--section",), "NAME", refused="the whole definition file is built"),
    Flag(("--update", "-u"), refused="images do not change; build it again"),
    Flag(("--encrypt", "-e"), refused=_SECRETS),
    Flag(("--nv",), refused="builds use no GPU"),
    Flag(("--rocm",), refused="builds use no GPU"),
    Flag(("--json",), refused="not supported"),
    Flag(("--remote", "-r"), refused="remote builders do not exist"),
    Flag(("--writable-tmpfs",), refused="not supported"),
    Flag(("--mksquashfs-args",), "ARGS", refused="the format is fixed"),
    *_OF_LOG_IN,
)  # fmt: skip
_INSPECT = (
    Flag(("--labels", "-l"), meaning="the labels (default)"),
    Flag(("--runscript", "-r"), meaning="the runscript"),
    Flag(("--deffile", "-d"), meaning="the definition file"),
    Flag(("--environment", "-e"), meaning="the scripts that set environment variables"),
    Flag(("--helpfile", "-H"), meaning="the help text"),
    Flag(("--test", "-t"), meaning="the test script"),
    Flag(("--json", "-j"), meaning="print JSON"),
    Flag(("--all",), refused="name what you need: --labels, --runscript, --deffile, --environment"),
    Flag(("--list-apps",), refused="SCIF applications are not supported"),
    Flag(("--app",), "NAME", refused="SCIF applications are not supported"),
)  # fmt: skip

TABLE = Table(
    names=("apptainer", "singularity"),
    version=VERSION,
    prefixes=("APPTAINER_", "SINGULARITY_"),
    flags=(
        Flag(("--quiet", "-q"), meaning="show errors only"),
        Flag(("--silent", "-s"), meaning="show errors only"),
        Flag(("--verbose", "-v"), meaning="no effect"),
        Flag(("--debug", "-d"), meaning="no effect"),
        Flag(("--nocolor",), meaning="no effect: nothing is coloured"),
        Flag(("--config",), "FILE", refused="the settings are those of Bareboat: bareboat config"),
        Flag(("--help", "-h"), meaning="print what is supported"),
        Flag(("--version",), meaning="print the version of Apptainer whose command line this is"),
    ),
    verbs=(
        Verb("exec", "[FLAGS] IMAGE COMMAND [ARGUMENTS]", "run a command", flags=_CONTAINER, own=1, least=2),
        Verb("run", "[FLAGS] IMAGE [ARGUMENTS]", "run the image's runscript, or ENTRYPOINT and CMD",
             flags=_CONTAINER, own=1, least=1),
        Verb("shell", "[FLAGS] IMAGE", "open a shell", flags=(*_CONTAINER, _SHELL), own=1, least=1),
        Verb("pull", "[FLAGS] [FILE] REFERENCE", "write a SIF file of an image",
             flags=(_FORCE, _ARCHITECTURE, _INTO, _NO_HTTPS, _NO_CACHE,
                    Flag(("--name",), "FILE", "the name of the file"),
                    Flag(("--allow-unsigned", "-U"), meaning="no effect: the signature policy decides"),
                    Flag(("--library",), "URL", refused=_OF_LIBRARIES), *_OF_LOG_IN), least=1),
        Verb("build", "[FLAGS] FILE SOURCE", "write a SIF file of a definition file, image or directory",
             flags=_BUILD, least=2),
        Verb("inspect", "[FLAGS] IMAGE", "print an image's metadata", flags=_INSPECT, least=1),
        Verb("version", meaning="print the version of Apptainer whose command line this is"),
        Verb("help", "[COMMAND]", "print what is supported"),
        Verb("instance", refused="no container runs in the background; start the service in the job script"),
        Verb("push", refused="use bareboat image push"),
        Verb("cache", refused="the store is no cache; see bareboat image ls and bareboat image rm"),
        Verb("sign", refused="use cosign, or Apptainer itself"),
        Verb("verify", refused="the signature policy is checked at each pull; see bareboat image verify"),
        Verb("test", refused="%test is not supported"),
        Verb("run-help", refused="use inspect --helpfile"),
        Verb("overlay", refused="--overlay takes directories: mkdir"),
        Verb("sif", refused="SIF files are written and read as a whole"),
        *(Verb(name, refused=_OF_LIBRARIES)
             for name in ("delete", "search", "remote", "keyserver", "registry")),
        *(Verb(name, refused="it administers an installation of Apptainer")
          for name in ("capability", "checkpoint", "config", "key", "oci", "plugin", "completion")),
    ),
    code=1,
    fatal=255,
)  # fmt: skip
