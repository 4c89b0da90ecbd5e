#!/usr/bin/env python3
"""A training job's memory, descriptors and steps per second before, during and after clients that mean
its metrics port no good: a POST of 600 MiB, header lines without end, 200 connections that send a byte
now and then.

  tools/metrics_port_clients.py [WEFT] [SECONDS]     build/release/weft, 5 s each
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "tests" / "e2e"))

import hostile  # noqa: E402


def step_of(port):
    return float(re.search(r"^weft_step (\S+)", hostile.scrape(port)[1], re.MULTILINE).group(1))


def watch(process, port, name, seconds):
    """Steps per second over so many seconds, and what the process holds."""
    begin, first = time.monotonic(), step_of(port)
    most = 0
    while time.monotonic() < begin + seconds:
        most = max(most, hostile.descriptors(process.pid))
        time.sleep(0.05)
    rate = (step_of(port) - first) / (time.monotonic() - begin)
    print(f"{name:28} {hostile.peak_memory(process.pid) / 2**20:9.1f} {most:12} {rate:9.1f}",
          flush=True)


def repeated(client, port, ended):
    while not ended.is_set():
        client(port)


def main(arguments):
    weft = pathlib.Path(arguments[0] if arguments else SOURCE / "build/release/weft").resolve()
    seconds = float(arguments[1]) if len(arguments) > 1 else 5.0
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [weft, "train", SOURCE / "examples" / "synthetic.yaml", "--set", "train.epochs=1000",
             "--set", "train.log_every=1", "--quiet", "--metrics-port", "0"],
            cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r"at port (\d+)", process.stderr.readline()).group(1))
            while "weft_step " not in hostile.scrape(port)[1]:
                time.sleep(0.1)
            print(f"{'':28} {'MiB, peak':>9} {'descriptors':>12} {'steps/s':>9}")
            watch(process, port, "nobody", seconds)
            for name, client in (("POST of 600 MiB", hostile.post),
                                 ("header lines without end", hostile.endless_head)):
                ended = threading.Event()
                thread = threading.Thread(target=repeated, args=(client, port, ended))
                thread.start()
                watch(process, port, name, seconds)
                ended.set()
                thread.join()
            with hostile.SlowClients(port, 200):
                watch(process, port, "200 slow connections", seconds)
            watch(process, port, "nobody", seconds)
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
