from .detection import (
    aligned_detection_loss as aligned_detection_loss,
    ap50_by_layer as ap50_by_layer,
    digit_canvases as digit_canvases,
    train_detector as train_detector,
)
from .loss import aligned_loss as aligned_loss, exit_weights as exit_weights
from .objectives import Objective as Objective
from .profile_callback import ProfileCallback as ProfileCallback
from .sentence import AlignedLoss as AlignedLoss
from .trainer import AlignedTrainer as AlignedTrainer
