"""Figures for Prometheus while a job runs."""

import re
import socket
import urllib.request

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
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            self.assertEqual(reply.headers["Content-Type"], "text/plain; version=0.0.4")
            lines = reply.read().decode().splitlines()
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


class MpiMetricsPort(MpiCase, Scrapes):
    def test_only_rank_0_serves(self):
        config = self.write(with_values(BASE, LONG))
        process = self.start(self.mpi_command(2, "train", config, "--metrics-port", 0))
        self.check(process)
        self.assertEqual(self.log_of(process).count("Prometheus at port"), 1)
