"""Processes that fight over stores. A program of its own: it imports once, has no threads, and forks as it likes.

Usage: python forks.py FOLDER kills|hammer; prints one JSON object.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import paper_spec
from walksum.paper.sweep.store import AlreadyRecorded, RunLocks, Store

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


def tear(share):
    """From now on this process is killed when it has written so much of a line."""
    whole = os.write

    def part(file, line):
        if len(line) < 50:
            return whole(file, line)
        whole(file, line[: int(share * len(line))])
        os.kill(os.getpid(), signal.SIGKILL)

    os.write = part


def kill_writers(folder, draw):
    """The numbers of the runs that were said to be written, by all writers together."""
    Store(folder).make()
    listen, said = os.pipe()
    heard = b""
    for number in range(KILLS):
        if number % 5 == 0:  # kernels seldom stop in the middle of a write: help them
            os.waitpid(child(lambda: (tear(draw.random()), write_on(folder, said, 1000))), 0)
        writer = child(lambda: write_on(folder, said, draw.choice([100, 100_000])))
        if draw.random() < 0.8:  # else it may be killed in its first line, or before
            assert select.select([listen], [], [], 60)[0], "the writer is silent"
            heard += os.read(listen, 1 << 16)
        time.sleep(draw.uniform(0.0, 0.02))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    os.close(said)
    with os.fdopen(listen, "rb") as file:
        return sorted(map(int, (heard + file.read()).split()))


def hammer(folder, processes):
    """Everyone wants to write every run, all at the same moment."""
    Store(folder).make()

    def write():
        store = Store(folder)
        look = store.is_done

        def look_and_linger(*arguments):
            """Time for the others between looking and writing, if nothing keeps them out."""
            found = look(*arguments)
            time.sleep(0.002)
            return found

        store.is_done = look_and_linger
        for number in range(RUNS):
            try:
                store.append(record(number, 5000))
            except AlreadyRecorded:
                continue

    for writer in [child(write) for _ in range(processes)]:
        os.waitpid(writer, 0)


def locks(folder):
    """What another process gets of three claimed keys: while their owner lives, and after it was killed."""
    keys = [paper_spec("mlp", "digits", seed).key for seed in range(4)]
    file = folder / "run-locks"
    listen, said = os.pipe()

    def own():
        RunLocks(file).take(keys[:3])
        os.write(said, b"!")
        time.sleep(60)

    owner = child(own)
    os.read(listen, 1)
    ours = RunLocks(file)
    living = len(ours.take(keys))
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    return [living, len(ours.take(keys))]


def main():
    folder, what = Path(sys.argv[1]), sys.argv[2]
    if what == "kills":
        print(json.dumps({"said": kill_writers(folder / "killed", random.Random(1)), "kills": KILLS}))
        return
    for processes in (2, 4):
        hammer(folder / f"hammered-{processes}", processes)
    print(json.dumps({"locks": locks(folder)}))


if __name__ == "__main__":
    main()
