from .loss import aligned_loss as aligned_loss, exit_weights as exit_weights
from .objectives import Objective as Objective
from .profile_callback import ProfileCallback as ProfileCallback
from .sentence import AlignedLoss as AlignedLoss
from .trainer import AlignedTrainer as AlignedTrainer
