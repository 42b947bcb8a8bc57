"""Processes that fight over stores. A program of its own: it imports once, has no threads, and forks as it likes.

Usage: python forks.py FOLDER SEED; prints one JSON object.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from walksum.experiments.locks import Claims
from walksum.experiments.record import RunRecord
from walksum.experiments.spec import paper_spec
from walksum.experiments.store import AlreadyRecorded, Store

KILLS, RUNS = 100, 40


def record(seed, size):
    """Long lines span many pages, so that a kill can tear them."""
    return RunRecord(paper_spec("mlp", "digits", seed), "ok", test_accuracy=0.5, message="x" * size)


def child(action):
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    return pid


def write_on(folder, said, size):
    """Append run after run; say the number of each one once it is written."""
    store = Store(folder)
    store.refresh()
    seed = len(store.latest())
    while True:
        store.append(record(seed, size))
        os.write(said, f"{seed}\n".encode())
        seed += 1


def kill_writers(folder, draw):
    """The numbers of the runs that were said to be written, by all writers together."""
    Store(folder).make()
    listen, said = os.pipe()
    heard = b""
    for _ in range(KILLS):
        writer = child(lambda: write_on(folder, said, draw.choice([100, 100_000])))
        if draw.random() < 0.8:  # else it may be killed in its first line, or before
            heard += os.read(listen, 1 << 16)
        time.sleep(draw.uniform(0.0, 0.02))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    os.close(said)
    with os.fdopen(listen, "rb") as file:
        return sorted(map(int, (heard + file.read()).split()))


def hammer(folder, processes, seed):
    """Everyone wants to write every run, each in an order of their own."""
    Store(folder).make()

    def write():
        store = Store(folder)
        for number in random.Random(os.getpid() + seed).sample(range(RUNS), RUNS):
            try:
                store.append(record(number, 5000))
            except AlreadyRecorded:
                continue

    for writer in [child(write) for _ in range(processes)]:
        os.waitpid(writer, 0)


def claims(folder):
    """What another process gets of three claimed keys: while their owner lives, and after it was killed."""
    keys = [paper_spec("mlp", "digits", seed).key for seed in range(4)]
    file = folder / "claims"
    listen, said = os.pipe()

    def own():
        Claims(file).take(keys[:3])
        os.write(said, b"!")
        time.sleep(60)

    owner = child(own)
    os.read(listen, 1)
    ours = Claims(file)
    living = len(ours.take(keys))
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    return [living, len(ours.take(keys))]


def main():
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    said = kill_writers(folder / "killed", random.Random(seed))
    for processes in (2, 4):
        hammer(folder / f"hammered-{processes}", processes, seed)
    print(json.dumps({"said": said, "kills": KILLS, "claims": claims(folder)}))


if __name__ == "__main__":
    main()
