import os
import signal
import threading

import pytest

from turnwise.runs.signals import StopSignal


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_is_kept_as_a_wish_and_the_old_handler_comes_back(name):
    number = signal.Signals[name]
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert stop.requested is None
        os.kill(os.getpid(), number)
        assert stop.requested == name
    assert signal.getsignal(number) == before


def test_a_second_ctrl_c_interrupts_at_once_whatever_came_between():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.requested == "SIGTERM"
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_off_the_main_thread_it_does_nothing():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def loop():
        with StopSignal() as stop:
            seen.append((signal.getsignal(signal.SIGTERM) == before, stop.requested))

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert seen == [(True, None)]
