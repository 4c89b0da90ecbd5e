"""One instruction set, one set of bits: on every run and for every number of threads."""

import os
import re
from unittest import mock

from harness import BASE, Case, with_values

TARGETS = ("sse4", "avx2", "best")

# Wide enough for oneDNN's vector code, with edges that fill no register.
DLRM = with_values(BASE, {
    "batch_size": 200,
    "model": {"type": "dlrm", "bottom_mlp": [67, 32], "top_mlp": [130, 35]},
    "sparse_optimizer": {"type": "adam"},
    "dense_optimizer": {"type": "adam"},
    "tables.1.dtype": "fp16",
})
DCNV2 = with_values(DLRM, {
    "model": {"type": "dcnv2", "bottom_mlp": [67, 32], "cross_layers": 2, "cross_rank": 21,
              "top_mlp": [130, 35]},
})

# What oneDNN says of the limit in force, and what its products must then not be named after. At avx2 it makes none.
ONEDNN = {"sse4": ("Intel SSE4.1", ("avx",))}


class Targets(Case):
    def setUp(self):
        super().setUp()
        # These tests set every limit themselves.
        limit = mock.patch.dict(os.environ)
        limit.start()
        self.addCleanup(limit.stop)
        os.environ.pop("ONEDNN_MAX_CPU_ISA", None)

    def values_of(self, target):
        return {} if target == "best" else {"numerics.target": target}

    def check(self, config):
        """Equal bits within each target; returns the summaries by target."""
        summaries = {}
        for target in TARGETS:
            name = self.write(config, values=self.values_of(target))
            first = self.train(name, "--threads", 1)
            if target != "best":
                self.assertEqual(first["target"], target)
            for threads in (1, 2, 2, 3, 3):
                again = self.train(name, "--threads", threads)
                self.assert_same_bits(first, again, f"{target}, {threads} threads")
                self.assertEqual(first["target"], again["target"])
            summaries[target] = first
        # Other bits, but the same training: the losses agree to what rounding leaves.
        for target in TARGETS[1:]:
            self.assertAlmostEqual(summaries["sse4"]["eval"]["loss"],
                                   summaries[target]["eval"]["loss"], places=4)
        return summaries

    def test_dlrm(self):
        self.check(DLRM)

    def test_dcnv2(self):
        self.check(DCNV2)

    def test_targets_are_different_code(self):
        """Were the limit without effect, all targets would have one set of bits. From avx2 on products are chains of
        fused multiply-adds, which may agree; below they are not fused."""
        hashes = {}
        for target in TARGETS:
            summary = self.train(self.write(DLRM, values=self.values_of(target)))
            hashes[summary["target"]] = summary["weights_hash"]
        self.assertNotIn(hashes.pop("sse4"), hashes.values())

    def test_the_environment_limits_too(self):
        """A machine under oneDNN's own limit has the bits of the target that it leaves, also in bf16."""
        for limit, target in (("SSE41", "sse4"), ("AVX2", "avx2")):
            for compute in ("fp32", "bf16"):
                values = {"model.compute": compute, "train.steps": 3}
                named = self.train(self.write(DCNV2, values={**values, **self.values_of(target)}))
                with mock.patch.dict(os.environ, {"ONEDNN_MAX_CPU_ISA": limit}):
                    limited = self.train(self.write(DCNV2, values=values))
                self.assertEqual(limited["target"], target)
                self.assert_same_bits(named, limited, f"{limit}, {compute}")

    def test_onednn_follows(self):
        """Products run below the limit that the target sets."""
        for target, (isa, above) in ONEDNN.items():
            name = self.write(DLRM, values={"numerics.target": target, "train.steps": 2,
                                            "model.compute": "bf16"})
            with mock.patch.dict(os.environ, {"ONEDNN_VERBOSE": "1"}):
                out = self.run_weft("train", name, "--quiet").out
            self.assertEqual(re.findall(r"^onednn_verbose,info,cpu,isa:(.*)$", out, re.MULTILINE),
                             [isa])
            used = re.findall(r"^onednn_verbose,exec,cpu,matmul,([^,]+),", out, re.MULTILINE)
            self.assertTrue(used, out)
            for implementation in set(used):
                for word in (*above, "ref"):
                    self.assertNotIn(word, implementation, f"{target} runs {implementation}")

    def test_products_of_avx2_are_not_onednns(self):
        for compute in ("fp32", "bf16"):
            name = self.write(DLRM, values={"numerics.target": "avx2", "train.steps": 2,
                                            "model.compute": compute})
            with mock.patch.dict(os.environ, {"ONEDNN_VERBOSE": "1"}):
                out = self.run_weft("train", name, "--quiet").out
            self.assertNotIn("exec,cpu,matmul", out)
