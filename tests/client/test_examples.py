"""The examples do what they say."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_resume_ends_with_every_check_held(uri, database):
    """Killed agents resume; a short run of what `make demo` shows."""
    command = [sys.executable, "run.py", "--uri", uri(database), "--seed", "1", "--rounds", "3"]
    run = subprocess.run(command, cwd=EXAMPLES / "resume", capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "8 of 8 conversations intact" in run.stdout


def test_chat_ends_with_every_check_held(uri, database):
    """A retrieval chat with tables of its own: all that it says of summaries, requests, retries, leaks and facts."""
    command = [sys.executable, "run.py", "--uri", uri(database)]
    run = subprocess.run(command, cwd=EXAMPLES / "chat", capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "34 of 34 checks held"


def test_chat_measures_the_recall_that_it_does_without(uri, database):
    command = [sys.executable, "recall_bench.py", "--uri", uri(database), "--facts", "1000", "--rounds", "3"]
    run = subprocess.run(command, cwd=EXAMPLES / "chat", capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "by user" in run.stdout and "by topic" in run.stdout


def test_resume_refuses_recordings_that_it_cannot_read():
    command = [sys.executable, "-m", "unittest", "test_conversations"]
    run = subprocess.run(command, cwd=EXAMPLES / "resume", capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "OK" in run.stderr.splitlines()[-1]


def test_of_two_workers_one_runs_each_task(uri, database):
    command = [sys.executable, "run.py", "--uri", uri(database)]
    run = subprocess.run(command, cwd=EXAMPLES / "workers", capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "every check held"
