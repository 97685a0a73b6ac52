"""Does a real GPU work in every engine of this machine as it does on bare metal?

    python bench/gpu/contract.py [--engine NAME ...] [--scratch FOLDER] [--limit SECONDS]

The part of tests/contract/test_gpu.py that needs a GPU. In each engine a small Python environment loads the
driver's libcuda, has it compile a kernel (PTX, as frameworks do), runs that on the first GPU and checks the
numbers; nvidia-smi lists the GPUs; CUDA_VISIBLE_DEVICES hides them. It takes no framework, no toolkit and no
network: Python, its venv module and what Bareboat itself depends on. Exit code 0 when all of it agrees with
bare metal, 1 when not, 3 where there is no GPU.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from bareboat import plan, registry, render
from bareboat.captures import capture
from bareboat.deployment.present import present
from bareboat.model import CaptureRequest, Image, Job, Site, Topology
from bareboat.probe import probe
from bareboat_base.errors import BareboatError
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store

#: Started in the engine: the CUDA driver's own interface, by ctypes. y[i] = 2 * x[i] + 1.
_PROGRAM = r'''
import ctypes, json, os
PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y)
{
  .reg .b64 %rd<6>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r2, [%rd4];
  mad.lo.u32 %r2, %r2, 2, 1;
  st.global.u32 [%rd5], %r2;
  ret;
}
\0"""
cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise SystemExit(json.dumps({"failed": name, "code": code}))

number, version = ctypes.c_int(), ctypes.c_int()
call("cuInit", 0)
call("cuDriverGetVersion", ctypes.byref(version))
call("cuDeviceGetCount", ctypes.byref(number))
device, context, module, function = ctypes.c_int(), *(ctypes.c_void_p() for _ in range(3))
name = ctypes.create_string_buffer(100)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDeviceGetName", name, 100, device)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"twice")
count = 1024
given = (ctypes.c_uint32 * count)(*range(count))
got = (ctypes.c_uint32 * count)()
x, y = ctypes.c_uint64(), ctypes.c_uint64()
for each in (x, y):
    call("cuMemAlloc_v2", ctypes.byref(each), ctypes.c_size_t(4 * count))
call("cuMemcpyHtoD_v2", x, given, ctypes.c_size_t(4 * count))
places = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in (x, y)))
call("cuLaunchKernel", function, 1, 1, 1, count, 1, 1, 0, None, places, None)
call("cuMemcpyDtoH_v2", got, y, ctypes.c_size_t(4 * count))
print(json.dumps({
    "cuda": version.value, "gpus": number.value, "name": name.value.decode(),
    "right": list(got) == [2 * i + 1 for i in range(count)],
}))
'''


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", action="append", help="only this one; may be given more than once")
    parser.add_argument("--scratch", help="where the store and the environment go for the time")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one command in an engine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch, ignore_cleanup_errors=True) as top:
        return _compare(Path(top), options.engine or list(registry.names("engines")), options.limit)


def _compare(top: Path, engines: list[str], limit_s: float) -> int:
    store = Store(top / "store")
    site = probe(store)
    drivers = [driver for driver in site.gpu_drivers if driver.devices]
    for driver in drivers:
        print(json.dumps(msgspec.to_builtins(driver), indent=1))
    if not drivers:
        print("there is no GPU with a driver here", file=sys.stderr)
        return 3
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", top / "env"], check=True)
    image, _ = capture(CaptureRequest(python=str(top / "env/bin/python")), store)
    (top / "work").mkdir()
    bare = _tried(top, store, image, site, "native", limit_s)
    print(f"{'native':<14} {bare}", flush=True)
    failed = bare["right"] is not True
    for name in (each for each in engines if each != "native"):
        facts = site.engine(name)
        if facts is None or not facts.works:
            print(f"{name:<14} not tried: {facts.detail if facts is not None else 'it is not here'}")
            continue
        try:
            found = _tried(top, store, image, site, name, limit_s)
        except BareboatError as error:
            found = {"refused": error.message}
        except subprocess.TimeoutExpired:
            found = {"stopped": f"no end after {limit_s:g} s"}
        same = found == bare
        failed |= not same
        print(f"{name:<14} {'as on bare metal' if same else f'DIFFERS: {found}'}", flush=True)
    return int(failed)


def _tried(
    top: Path, store: Store, image: Image, site: Site, engine: str, limit_s: float
) -> dict[str, object]:
    def run(*command: str, visible: str | None = None) -> subprocess.CompletedProcess[str]:
        return _run(_script(top, store, image, site, engine, *command), limit_s, visible)

    computed = run("python", "-c", _PROGRAM)
    hidden = run("python", "-c", _PROGRAM, visible="")
    smi = "nvidia-smi"
    if engine == "native":  # where it may be in a folder that no image's PATH names
        known = {file.name: file.path for driver in site.gpu_drivers for file in driver.programs}
        smi = known.get(smi, smi)
    listed = run(smi, "-L")
    said: dict[str, object] = {"right": False, "stderr": computed.stderr.strip()}
    if computed.returncode == 0:
        said = json.loads(computed.stdout)
    # CUDA_ERROR_NO_DEVICE is 100.
    return {**said, "hidden": '"code": 100' in hidden.stderr, "nvidia-smi": listed.stdout or listed.stderr}


def _script(top: Path, store: Store, image: Image, site: Site, engine: str, *command: str) -> Path:
    job = Job(
        name="gpu",
        command=command,
        workdir=str(top / "work"),
        engine=engine,
        topology=Topology(gpus_per_rank=1),
    )
    made = plan.plan(job, image, present(store, image, site, job), site)
    if made.needs_flat:
        make_flat(store, image, made.mount_points)
    script = top / f"{engine}.sh"
    script.write_text(render.script(made))
    return script


def _run(script: Path, limit_s: float, visible: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    with subprocess.Popen(
        ["bash", str(script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, complained = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            # The engine's processes hold the pipes as well.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, printed, complained)


if __name__ == "__main__":
    sys.exit(main())
