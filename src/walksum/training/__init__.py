"""One training loop: how a model is fitted, on which device, what is measured on the way."""

from walksum.training.data import TASKS, Data, Task
from walksum.training.fitting import fit
from walksum.training.history import Epoch, Outcome
from walksum.training.recipe import Recipe

__all__ = ["TASKS", "Data", "Epoch", "Outcome", "Recipe", "Task", "fit"]
