"""The ten families of perturbation sequences of ImageNet-P and CIFAR-10-P, by name."""

from __future__ import annotations

# Every frame of these is a new draw of noise on the first one, and is compared with it; elsewhere with the frame before.
NOISE_FAMILIES = ("gaussian_noise", "shot_noise")
FAMILIES = (*NOISE_FAMILIES, "motion_blur", "zoom_blur", "snow", "brightness", "translate", "rotate", "tilt", "scale")
FRAMES = 31
