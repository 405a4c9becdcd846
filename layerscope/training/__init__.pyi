from .loss import aligned_loss as aligned_loss, exit_weights as exit_weights
from .objectives import Objective as Objective
from .sentence import AlignedLoss as AlignedLoss
from .trainer import AlignedTrainer as AlignedTrainer
