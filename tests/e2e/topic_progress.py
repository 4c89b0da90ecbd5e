"""What a job shows while it runs, on terminals of several widths and elsewhere."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading

from harness import BASE, Case, LIMIT_S, with_values

STEPS = {"train.steps": 24, "train.log_every": 4, "train.eval_every": 8}


class Progress(Case):
    def on_terminal(self, columns, config, *args):
        """Runs a job whose standard error is a terminal; returns what it wrote there."""
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([self.weft, "train", config, *args], cwd=self.folder,
                                   env=self.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=inner, text=True)
        os.close(inner)
        written = bytearray()

        def read():
            try:
                while part := os.read(outer, 65536):
                    written.extend(part)
            except OSError:  # all have closed the other end
                pass

        reader = threading.Thread(target=read)
        reader.start()
        process.communicate(timeout=LIMIT_S)
        reader.join()
        os.close(outer)
        self.assertEqual(process.returncode, 0, written.decode())
        return written.decode()

    def rows(self, text):
        """Every text that the last row showed, or that stayed."""
        return [row for row in re.split(r"\r\x1b\[K|\r\n", text) if row]

    def test_no_row_is_wider_than_the_terminal(self):
        config = self.write(with_values(BASE, STEPS))
        for columns in (40, 80, 120, 200):
            rows = self.rows(self.on_terminal(columns, config))
            statuses = [row for row in rows if row.startswith(("step ", "reading", "filling"))]
            self.assertTrue(any("/24  NE " in row for row in statuses), rows)
            self.assertLess(max(map(len, statuses)), columns, statuses)
        self.assertTrue(any("update" in row for row in statuses), statuses)

    def test_phases_are_shown_before_the_first_window(self):
        config = self.write(with_values(BASE, STEPS | {"train.log_every": 1000}))
        text = "\n".join(self.rows(self.on_terminal(80, config, "--checkpoint", "ck")))
        for part in ("reading data", "filling tables", "step 0/24", "step 8/24  evaluating",
                     "step 24/24  writing a checkpoint", "hashing weights"):
            self.assertIn(part, text)
        config = self.write(with_values(BASE, STEPS | {"train.steps": 30}))
        text = self.on_terminal(80, config, "--resume", "ck")
        self.assertIn("loading the checkpoint", text)

    def test_messages_do_not_share_a_row_with_it(self):
        config = self.write(with_values(BASE, STEPS))
        rows = self.rows(self.on_terminal(80, config, "--checkpoint", "ck", "--trace", "t",
                                          "--trace-steps", "6:7"))
        for row in rows:
            self.assertNotRegex(row, r"^step .*(evaluation at|checkpoint ck|weft:)", rows)
        self.assertEqual(sum(row.startswith("evaluation at step") for row in rows), 3, rows)

    def test_last_figures_stay(self):
        text = self.on_terminal(80, self.write(with_values(BASE, STEPS)))
        self.assertRegex(text, r"\r\x1b\[Kstep 24/24  NE [^\r]*\r\n$")

    def test_elsewhere_a_line_per_window(self):
        result = self.run_weft("train", self.write(with_values(BASE, STEPS)))
        self.assertNotIn("\x1b", result.err)
        lines = [line for line in result.err.splitlines() if line.startswith("step ")]
        self.assertEqual([line.split()[1] for line in lines],
                         [f"{step}/24" for step in (4, 8, 12, 16, 20, 24)])

    def test_quiet_shows_nothing(self):
        text = self.on_terminal(80, self.write(with_values(BASE, STEPS)), "--quiet")
        self.assertNotIn("step", text)
