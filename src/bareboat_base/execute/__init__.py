"""The only package that starts processes: short commands to tools, and live job scripts.

Every process of a run carries BAREBOAT_RUN in its environment, through `env -i`, containers and new sessions.
A run is found and measured by that mark, not by a process group. A process can lose it, so a run is
terminated by its job script, below which the kernel keeps whatever the run starts. The steps of builds are
started by `bareboat_images.builder.guarded_command`.
"""

from bareboat_base.execute.background import in_background as in_background
from bareboat_base.execute.processes import descendants as descendants
from bareboat_base.execute.processes import end_strays as end_strays
from bareboat_base.execute.processes import processes_of as processes_of
from bareboat_base.execute.scripts import SAMPLER as SAMPLER
from bareboat_base.execute.scripts import STOP_GRACE_S as STOP_GRACE_S
from bareboat_base.execute.scripts import Live as Live
from bareboat_base.execute.signals import interrupts_held as interrupts_held
from bareboat_base.execute.signals import interrupts_left_to_child as interrupts_left_to_child
from bareboat_base.execute.signals import termination_raised as termination_raised
from bareboat_base.execute.tools import START_S as START_S
from bareboat_base.execute.tools import TIMEOUT_VARIABLE as TIMEOUT_VARIABLE
from bareboat_base.execute.tools import Deadline as Deadline
from bareboat_base.execute.tools import Watch as Watch
from bareboat_base.execute.tools import patience as patience
from bareboat_base.execute.tools import run as run
from bareboat_base.execute.tools import run_all as run_all
from bareboat_base.execute.tools import run_in_terminal as run_in_terminal
from bareboat_base.execute.tools import set_patience as set_patience
from bareboat_base.execute.tools import side_by_side as side_by_side
from bareboat_base.execute.tools import which as which
