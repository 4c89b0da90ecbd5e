"""Figures for Prometheus while a job runs."""

import re
import resource
import socket

import hostile
from harness import BASE, Case, MpiCase, with_values

LONG = {"train.steps": 20000, "data.synthetic.samples": 2000, "train.log_every": 2,
        "train.eval_every": 4}
SAMPLE = re.compile(r'^([a-z_]+)(\{([a-z_]+)="([^"]*)"\})? (\S+)$')


class Scrapes:
    def port_of(self, process):
        def found():
            return re.search(r"Prometheus at port (\d+)", self.log_of(process))
        self.wait_for(found, process, "a port in the log")
        return int(found().group(1))

    def scrape(self, port):
        """The page's figures by name and label."""
        kind, page = hostile.scrape(port)
        self.assertEqual(kind, "text/plain; version=0.0.4")
        lines = page.splitlines()
        figures, typed = {}, set()
        for line in lines:
            if line.startswith("# TYPE "):
                typed.add(line.split()[2])
            elif not line.startswith("#"):
                name, _, _, label, value = SAMPLE.match(line).groups()
                self.assertIn(name, typed)
                self.assertNotIn((name, label), figures)
                figures[name, label] = float(value)
        return figures

    def check(self, process):
        port = self.port_of(process)
        self.wait_for(lambda: ("weft_eval_auc", "click") in self.scrape(port), process,
                      "an evaluation")
        first = self.scrape(port)
        self.assertEqual(first["weft_up", None], 1)
        self.assertGreater(first["weft_samples_per_second", None], 0)
        self.assertTrue(0 < first["weft_train_ne", "click"] < 3)
        shares = sum(value for (name, _), value in first.items() if name == "weft_time_share")
        self.assertTrue(0 < shares <= 1.0001, shares)
        self.wait_for(lambda: self.scrape(port)["weft_step", None] > first["weft_step", None],
                      process, "a later step")
        self.assertGreater(self.scrape(port)["weft_samples_total", None],
                           first["weft_samples_total", None])


class MetricsPort(Case, Scrapes):
    def serve(self, *args, **options):
        """A job that trains on and serves its figures; its process and port."""
        config = self.write(with_values(BASE, LONG))
        process = self.start([self.weft, "train", config, "--metrics-port", 0, *args], **options)
        port = self.port_of(process)
        self.wait_for(lambda: ("weft_step", None) in self.scrape(port), process, "a step")
        return process, port

    def end(self, process):
        process.terminate()
        self.assertEqual(self.wait(process).code, 130)

    def test_figures_while_it_runs(self):
        config = self.write(with_values(BASE, LONG))
        process = self.start([self.weft, "train", config, "--metrics-port", 0, "--ranks", 2])
        self.check(process)
        process.terminate()
        self.assertEqual(self.wait(process).code, 130)

    def test_port_that_is_taken(self):
        with socket.socket() as other:
            other.bind(("0.0.0.0", 0))
            other.listen()
            port = other.getsockname()[1]
            self.refused(2, "train", self.write(), "--metrics-port", port,
                         says=(f"--metrics-port {port}", "free port"))

    def test_no_port_by_default(self):
        result = self.run_weft("train", self.write())
        self.assertNotIn("Prometheus", result.err)


    def test_only_get_and_only_figures(self):
        process, port = self.serve()
        for request, status in ((b"GET /metrics HTTP/1.1", b"200"),
                                (b"GET /metrics?a=b HTTP/1.0", b"200"),
                                (b"GET / HTTP/1.1", b"404"),
                                (b"POST /metrics HTTP/1.1", b"405"),
                                (b"HEAD /metrics HTTP/1.1", b"405"),
                                (b"hello", b"400")):
            answer = hostile.ask(port, request + b"\r\nHost: x\r\n\r\n")
            self.assertEqual(answer.split()[1], status, request)
        in_pieces = hostile.connect(port)
        for piece in (b"GET /met", b"rics HTTP/1.1\r\nHo", b"st: x\r\n\r", b"\n"):
            in_pieces.sendall(piece)
        self.assertEqual(in_pieces.recv(65536).split()[1], b"200")
        self.end(process)

    def test_listens_on_loopback_unless_told(self):
        for address, found in ((None, "0100007F"), ("0.0.0.0", "00000000")):
            process, port = self.serve(*([] if address is None else ["--metrics-address", address]))
            listening = [line.split()[1].split(":")[0]
                         for line in open("/proc/net/tcp").read().splitlines()[1:]
                         if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"]
            self.assertEqual(listening, [found])
            self.end(process)

    def test_address_without_port_or_machine(self):
        self.refused(2, "train", self.write(), "--metrics-address", "0.0.0.0", says="--metrics-port")
        self.refused(2, "train", self.write(), "--metrics-port", 0, "--metrics-address", "192.0.2.1",
                     says=("--metrics-port 0", "192.0.2.1", "--metrics-address"))

    def test_quiet_says_a_port_that_it_chose(self):
        process, _ = self.serve("--quiet")
        self.end(process)

    def test_memory_that_a_client_can_take(self):
        process, port = self.serve()
        self.scrape(port)
        before = hostile.peak_memory(process.pid)
        for client in (hostile.post, hostile.endless_head):
            # What it could send lies in buffers of the kernel.
            self.assertLess(client(port), 64 << 20, client)
            self.scrape(port)
        self.assertLess(hostile.peak_memory(process.pid), before + (32 << 20))
        self.end(process)

    def test_descriptors_and_time_that_clients_can_take(self):
        process, port = self.serve("--checkpoint", "ck", "--checkpoint-every", 50,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                                         (200, 200)))
        before = hostile.descriptors(process.pid)
        with hostile.SlowClients(port, 200) as clients:
            self.wait_for(lambda: clients.opened > 400, process, "200 connections again")
            step = self.scrape(port)["weft_step", None]
            # 8 connections, and the files of a checkpoint that is being written.
            self.assertLess(hostile.descriptors(process.pid), before + 8 + 8)
            self.wait_for(lambda: self.scrape(port)["weft_step", None] > step, process, "a step")
            seen = (self.folder / "ck/latest").read_text()
            self.wait_for(lambda: (self.folder / "ck/latest").read_text() != seen, process,
                          "a checkpoint")
        self.end(process)


class MpiMetricsPort(MpiCase, Scrapes):
    def test_only_rank_0_serves(self):
        config = self.write(with_values(BASE, LONG))
        process = self.start(self.mpi_command(2, "train", config, "--metrics-port", 0))
        self.check(process)
        self.assertEqual(self.log_of(process).count("Prometheus at port"), 1)
