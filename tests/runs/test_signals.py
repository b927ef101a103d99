import os
import pty
import signal
import sys
import threading

import pytest

from turnwise.runs.signals import StopSignal


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
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


def test_a_closed_terminal_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.requested is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_came_earlier_is_raised_where_nothing_is_waited_for():
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), stop.at_once():
            pytest.fail("loaded a model first")


def test_a_closed_terminal_is_written_to_no_more(monkeypatch):
    main, side = pty.openpty()
    with os.fdopen(side, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        with StopSignal(lambda text: print(text, flush=True)) as stop:
            os.close(main)  # from here on writing is an error
            signal.raise_signal(signal.SIGHUP)
        assert stop.requested == "SIGHUP"
