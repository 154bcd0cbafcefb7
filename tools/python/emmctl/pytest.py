"""Memory as a unit test, on a machine without a GPU:

    pytest_plugins = ["emmctl.pytest"]                  # conftest.py

    def test_training_fits(emmctl_gpu):
        assert emmctl_gpu(train, 3, gpu="rtx4090")      # calls train(3) in a process of its own

    def test_batch(emmctl_gpu):
        answer = emmctl_gpu(train, 1, capacity="24GiB")
        assert answer.fits and answer.peak_bytes < 20 * 2**30, answer

What is asserted is an emmctl.simulated.Answer; a test that fails shows what it says. An error of the function's that has nothing
to do with memory is the test's.
"""
import pytest

from emmctl import simulated


@pytest.fixture
def emmctl_gpu():
    """Calls a function on a simulated device, in a process of its own: emmctl.simulated.run."""
    def run(function, *arguments, **options):
        return simulated.run(function, *arguments, check=True, **options)
    return run
