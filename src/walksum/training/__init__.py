"""One training loop: how a model is fitted, on which device, what is measured on the way."""
