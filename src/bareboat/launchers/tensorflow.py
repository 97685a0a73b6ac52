"""tensorflow: tf.distribute.MultiWorkerMirroredStrategy reads its workers from TF_CONFIG.

Documentation: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
Works with the Keras of TensorFlow up to 2.15, and after it with TF_USE_LEGACY_KERAS=1; Keras 3 has no such
strategy.
"""

from __future__ import annotations

from bareboat.launchers import RANK_NAMES, RANK_VARIABLES, Launch, Launcher, Passed, Surroundings, threads
from bareboat.model import Job, Refusal, Start

#: Every worker is listed with a port of its own, so each node must know the names of all nodes.
_PRELUDE = """\
local hosts=() workers='' host number
[ ! -s "$BAREBOAT_CONTROL/hosts" ] || mapfile -t hosts < "$BAREBOAT_CONTROL/hosts"
hosts[0]=$BAREBOAT_MASTER
for host in "${hosts[@]}"; do
  for ((number = 0; number < LOCAL_WORLD_SIZE; number++)); do
    workers+="${workers:+, }\\"$host:$((BAREBOAT_PORT + number))\\""
  done
done
printf -v TF_CONFIG '{"cluster": {"worker": [%s]}, "task": {"type": "worker", "index": %s}}' \\
  "$workers" "$RANK"
"""


class TensorFlow(Launcher):
    NAME = "tensorflow"
    START = Start.RANKS
    KEEPS_OUTPUT = True
    SETS = ("TF_CONFIG",)
    TRANSPORT = "gRPC"

    def judge(self, job: Job, around: Surroundings) -> Launch | Refusal:
        image = around.image
        names = ("tensorflow", "tensorflow-cpu", "tensorflow_cpu", "tensorflow-gpu", "tensorflow_gpu")
        if image is not None and not any(name in image.frameworks for name in names):
            return Refusal("TensorFlow is not in the environment", remedy="pip install tensorflow")
        return Launch(
            reason="TF_CONFIG lists all workers for each worker",
            environment=threads(job),
            passed=Passed((*RANK_VARIABLES, "TF_CONFIG"), own=(*RANK_NAMES, "TF_CONFIG")),
            prelude=_PRELUDE,
        )
