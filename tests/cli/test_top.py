"""`headgate top` in a real pseudo terminal, which it leaves as it was."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headgate.host.driver.job_directory import entries
from tests.cli.kit import Done, Headgate
from tests.cli.page_kit import Page, job_with_page
from tests.cli.terminal_kit import Terminal

BEGINS, ENDS = "\x1b[?1049h", "\x1b[?1049l"
"""Another screen, and back to the one before."""


@pytest.fixture
def page(headgate: Headgate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setenv("COLUMNS", "100")
    with job_with_page() as page:
        yield page


def test_keys_lead_through_a_job_and_out_again(page: Page) -> None:
    with Terminal("top", "--interval", "600") as terminal:
        terminal.await_text("slow -> Sink: end")
        assert BEGINS in terminal.written
        terminal.press(b"\x1b[B\x1b[B\r")
        terminal.await_text("here:78")
        terminal.press(b"\x1b")
        terminal.await_text("enter opens")
        terminal.press(b"s")
        terminal.await_text("s sorts (busy)")
        terminal.press(b"")
        terminal.resize(60, 12)
        terminal.await_text("q quits ")
        terminal.press(b"q")
        assert terminal.await_end() == 0
        assert terminal.written.rstrip().endswith(ENDS)
        terminal.await_modes()


def test_a_stopped_top_gives_the_terminal_back_until_it_goes_on(page: Page) -> None:
    with Terminal("top") as terminal:
        terminal.await_text("slow")
        terminal.press(b"\x1a")  # Ctrl-Z
        terminal.await_text(ENDS)
        _, how = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(how)
        terminal.await_modes()
        terminal.press(b"")
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.await_text("slow")
        assert BEGINS in terminal.written
        terminal.press(b"\x03")  # Ctrl-C
        assert terminal.await_end() == 130
        assert ENDS in terminal.written
        terminal.await_modes()


def test_sigterm_leaves_the_terminal_as_it_was(page: Page) -> None:
    with Terminal("top") as terminal:
        terminal.await_text("slow")
        terminal.press(b"")
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.await_end() == 143
        assert ENDS in terminal.written
        terminal.await_modes()


def test_a_terminal_without_a_screen_gets_one_frame(page: Page) -> None:
    with Terminal("top", kind="dumb") as terminal:
        assert terminal.await_end() == 0
        assert "slow" in terminal.written and "\x1b" not in terminal.written


def test_the_end_of_a_job_and_of_its_driver_are_told(page: Page) -> None:
    with Terminal("top", "--interval", "0.1") as terminal:
        terminal.await_text("slow")
        (entry,) = [entry for entry, _ in entries()]
        page.job["state"] = "RESTARTING"
        terminal.await_text("restarting")
        page.job["state"] = "FAILED"
        terminal.await_text("(count orders) is failed; this is how it has ended")
        assert "slow" in terminal.written
        terminal.press(b"q")
        assert terminal.await_end() == 0
        assert f"job {entry.job} (count orders) is failed" in terminal.written.split(ENDS)[-1]


def test_a_driver_that_is_gone_leaves_what_was_seen_of_its_job(headgate: Headgate) -> None:
    with ExitStack() as driver:
        driver.enter_context(job_with_page())
        with Terminal("top", "--interval", "0.1") as terminal:
            terminal.await_text("slow")
            driver.close()
            terminal.await_text("and its driver is gone; this is what was seen of it")
            assert "slow" in terminal.written
            terminal.press(b"q")
            assert terminal.await_end() == 0


def test_one_frame_is_printed_for_scripts(headgate: Headgate, page: Page) -> None:
    done = headgate("top", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "why: 'slow' limits the job" in done.stdout
    assert "q quits" not in done.stdout and "\x1b" not in done.stdout
    assert headgate("top").stdout == done.stdout, "there is no terminal"
    page.status[""] = 503
    page.answers[""] = {"errors": ["it has just begun"]}
    done = headgate("top", "--once", "ab12")
    assert done == Done(1, "", "headgate: job ab12cd (count orders): it has just begun\n")


def test_several_jobs_are_listed_for_scripts(headgate: Headgate, page: Page) -> None:
    with job_with_page("cd34", "clicks"):
        done = headgate("top", "--once")
        assert "2 jobs" in done.stdout and "clicks" in done.stdout and "ab12cd" in done.stdout
        assert "why" in headgate("top", "--once", "clicks").stdout


def test_an_interval_that_cannot_be_is_wrong_usage(headgate: Headgate) -> None:
    done = headgate("top", "--interval", "0")
    assert done.returncode == 2
    assert "--interval" in done.stderr
