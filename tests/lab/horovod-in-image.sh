#!/usr/bin/env bash
# Compiles Horovod for TensorFlow inside an image, as a site layer, and trains with it on two ranks of this
# machine. CI leaves it out, since compiling takes four minutes of CPU time. The image is Debian with Python, a
# compiler and the TensorFlow 2.15.1 of tests/lab/frameworks.sh; it needs mmdebstrap, an mpirun, and an index
# for pip.
#
#   tests/lab/horovod-in-image.sh FOLDER        # as an ordinary user; fairlead on PATH; 5 GB in FOLDER
set -euo pipefail

framework=${PREFIX:-/opt/fairlead-lab/frameworks}/tensorflow
die() { printf 'horovod-in-image: %s\n' "$1" >&2; printf 'try: %s\n' "$2" >&2; exit 1; }

[ $# -eq 1 ] || die 'no folder is named' "$0 FOLDER"
[ -d "$framework/lib" ] || die "there is no $framework" 'sudo tests/lab/frameworks.sh'
mkdir -p "$1"
cd "$1"
export FAIRLEAD_STORE=$PWD/store

if [ ! -e root/.whole ]; then
  nice mmdebstrap --quiet --mode=unshare --variant=minbase --include=g++,make,python3,python3-dev \
    bookworm root.tar
  mkdir -p root
  tar -C root -xf root.tar --exclude='./dev/*'
  rm root.tar
  packages=root/usr/local/lib/python3.11/dist-packages
  mkdir -p "$packages"
  cp -r "$framework"/lib/python3.11/site-packages/. "$packages"
  rm -rf "$packages"/{pip,setuptools,pkg_resources,_distutils_hack,distutils-precedence.pth}
  touch root/.whole
fi

cat >train.py <<'END'
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
tf.random.set_seed(hvd.rank())
weights = tf.Variable(tf.random.normal([4, 1]))
hvd.broadcast_variables([weights], root_rank=0)
optimizer = tf.keras.optimizers.SGD(0.1)
for step in range(30):
    x = tf.random.normal([8, 4])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
    optimizer.apply_gradients(zip(gradients, [weights]))
every = hvd.allgather(tf.transpose(weights)).numpy()
right = bool((every == every[0]).all()) and bool(abs(every - 1).max() < 0.2)
print("trained", hvd.rank(), hvd.size(), right, "mpi" if hvd.mpi_enabled() else "gloo", flush=True)
END
cat >train.toml <<END
image = "rootfs:$PWD/root"
command = ["python3", "train.py"]
site_layer = ["horovod"]
topology = { ranks_per_node = 2 }
END

fairlead image pull --quiet "rootfs:$PWD/root" >/dev/null
time fairlead site layer "rootfs:$PWD/root" --fresh --with horovod
fairlead run train.toml | tee trained.log
for rank in 0 1; do
  grep -q "trained $rank 2 True mpi" trained.log || die "rank $rank did not train" "less $PWD/trained.log"
done
echo 'horovod-in-image: two ranks trained one model'
