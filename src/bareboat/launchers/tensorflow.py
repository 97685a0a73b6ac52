"""tensorflow: tf.distribute.MultiWorkerMirroredStrategy reads its workers from TF_CONFIG.

Documentation: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
Works with the Keras of TensorFlow up to 2.15, and after it with TF_USE_LEGACY_KERAS=1; Keras 3 knows no such
strategy.
"""

from __future__ import annotations

import msgspec

from bareboat.launchers import RANK_NAMES, RANK_VARIABLES, Launchable, Passed, Surroundings, threads
from bareboat.model import Command, Job, Position, Refusal, Start, Where, Word

NAME = "tensorflow"
POSITION = Position.OUTSIDE
START = Start.RANKS
KEEPS_OUTPUT = True

#: Every worker is named with a port of its own, so all nodes must be known by name on each.
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


def judge(job: Job, surroundings: Surroundings) -> Launchable | Refusal:
    image = surroundings.image
    names = ("tensorflow", "tensorflow-cpu", "tensorflow_cpu", "tensorflow-gpu", "tensorflow_gpu")
    if image is not None and not any(name in image.frameworks for name in names):
        return Refusal("TensorFlow is not in the environment", remedy="pip install tensorflow")
    return Launchable("each worker is told all workers by TF_CONFIG")


def wrap(command: Command, job: Job, surroundings: Surroundings) -> Command:
    return msgspec.structs.replace(
        command, environment={**threads(job), **command.environment}, where=Where.RANK
    )


def passed(job: Job) -> Passed:
    return Passed((*RANK_VARIABLES, "TF_CONFIG"), own=(*RANK_NAMES, "TF_CONFIG"))


def program(job: Job, surroundings: Surroundings) -> tuple[Word, ...]:
    return ()


def prelude(job: Job, surroundings: Surroundings) -> str:
    return _PRELUDE


def proof(job: Job, surroundings: Surroundings) -> tuple[str, ...] | None:
    return None
