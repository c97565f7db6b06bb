"""An op of the project, and a kernel for it."""

import pytest_cgins

FACTOR = 2.0


@pytest_cgins.mark
def scaled(x):
    return x * FACTOR


def scaled_kernel(x):
    return x + x
