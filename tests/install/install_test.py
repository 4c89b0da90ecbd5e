"""An installed Weft, used by a project outside of the checkout.

Usage: install_test.py CMAKE BUILD COMPILER Static|Shared
Installs the build folder BUILD, where everything is built, under a temporary prefix.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/e2e"))

import harness  # noqa: E402  (found through the line above)


def run(*command, **options):
    """Output of a command that has to succeed."""
    result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, **options)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nexit code {result.returncode}\n{result.stdout}")
    return result.stdout


class Installed(harness.Case):
    """The prefix, and examples/consumer built with it; both are made once."""

    cmake = build = compiler = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="weft-install-")
        cls.addClassCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        cls.prefix = root / "prefix"
        run(cls.cmake, "--install", cls.build, "--prefix", cls.prefix)
        cls.weft = str(cls.prefix / "bin/weft")
        cls.consumer = root / "build/consumer"
        cls.configured = run(cls.cmake, "-S", cls.copied(root), "-B", root / "build", "-G", "Ninja",
                             f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DCMAKE_CXX_COMPILER={cls.compiler}",
                             "-DCMAKE_CXX_FLAGS=-Wall -Wextra", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        cls.built = run(cls.cmake, "--build", root / "build", "--verbose")
        cls.package = next(cls.prefix.glob("lib*/**/cmake/weft"))

    @classmethod
    def copied(cls, root):
        """The example alone, so that nothing of the checkout is beside it."""
        project = root / "consumer"
        project.mkdir()
        for name in ("CMakeLists.txt", "main.cc"):
            (project / name).write_text((SOURCE / "examples/consumer" / name).read_text())
        return project

    def taken(self, versions):
        """Those of `versions` for which a project that asks for one gets the installed package."""
        asks = [f"find_package(weft {v} QUIET)\nif(weft_FOUND)\n  message(STATUS \"takes {v}.\")\nendif()\n"
                for v in versions]
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(versions LANGUAGES CXX)\n" + "".join(asks))
        out = run(self.cmake, "-S", self.folder, "-B", self.folder / "build", "-G", "Ninja",
                  f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={self.compiler}")
        return re.findall(r"takes (.*)\.", out)

    def test_consumer_trains_the_bits_of_the_program(self):
        job = self.write()
        result = self.wait(self.start([self.consumer, job]))
        self.assertEqual(result.code, 0, str(result))
        self.run_weft("train", job, "--ranks", "2", "--quiet", "--summary", "summary.json")
        summary = json.loads((self.folder / "summary.json").read_text())
        self.assertEqual(result.out.split()[-1], summary["weights_hash"])

    def test_errors_reach_the_consumer(self):
        result = self.wait(self.start([self.consumer, "nothing.yaml"]))
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("consumer: cannot read the configuration 'nothing.yaml'", result.err)

    def test_package_names_nothing_of_the_build(self):
        files = sorted(self.package.iterdir())
        self.assertGreaterEqual({f.name for f in files},
                                {"weft-config.cmake", "weft-config-version.cmake", "weftTargets.cmake"})
        for file in files:
            text = file.read_text()
            for folder in (SOURCE, self.build, self.prefix):
                self.assertNotIn(str(folder), text, file.name)
            for option in ("-W", "-fsanitize", "-O", "-g1", "precompiled", "pch"):
                self.assertIsNone(re.search(r"(?<![\w-])" + option, text), f"{file.name} has {option}")

    def test_consumer_compiles_with_its_own_flags(self):
        command = next(line for line in self.built.splitlines() if " -c " in line)
        self.assertNotIn("-Werror", command)
        self.assertNotIn(str(SOURCE), command)
        self.assertIn("-ffp-contract=off", command)

    def test_another_minor_version_is_refused(self):
        version = re.search(r'set\(PACKAGE_VERSION "(\d+)\.(\d+)\.(\d+)"\)',
                            (self.package / "weft-config-version.cmake").read_text())
        major, minor, _ = map(int, version.groups())
        others = [f"{major}.{minor + 1}", f"{major + 1}.{minor}"]
        self.assertEqual(self.taken([*others, f"{major}.{minor}"]), [f"{major}.{minor}"])

    def test_headers_include_what_is_installed(self):
        include = self.prefix / "include"
        headers = sorted(include.rglob("*.h"))
        self.assertGreater(len(headers), 100)
        for header in headers:
            text = header.read_text()
            for name in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE):
                self.assertTrue((include / name).is_file(), f"{header} includes {name}")
            self.assertFalse(re.findall(r"^\s*#\s*include <(?:mpi|hwy|oneapi|nlohmann|yaml-cpp|CLI)\b.*", text,
                                        re.MULTILINE), header)

    def test_license_is_there(self):
        self.assertEqual((self.prefix / "share/doc/weft/LICENSE").read_text(), (SOURCE / "LICENSE").read_text())


class Static(Installed):
    """libweft.a."""

    def test_every_object_may_be_part_of_a_shared_library(self):
        archive = next(self.prefix.rglob("libweft.a"))
        run(self.compiler, "-shared", "-Wl,-z,text", "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive",
            "-o", self.folder / "all.so")

    def test_no_shared_library_is_installed(self):
        self.assertEqual(list(self.prefix.rglob("*.so*")), [])


class Shared(Installed):
    """libweft.so."""

    def test_name_has_the_minor_version(self):
        library = next(self.prefix.rglob("libweft.so"))
        dynamic = run("readelf", "-d", library)
        soname = re.search(r"SONAME\).*\[(.*)\]", dynamic)[1]
        self.assertRegex(soname, r"^libweft\.so\.\d+\.\d+$")
        self.assertTrue((library.parent / soname).is_file())
        self.assertNotIn("TEXTREL", dynamic)
        self.assertNotRegex(dynamic, "RPATH|RUNPATH")

    def test_consumer_loads_it_and_links_no_archive(self):
        loaded = run("ldd", self.consumer)
        self.assertRegex(loaded, r"libweft\.so\.\d+\.\d+ => " + re.escape(str(self.prefix)))
        self.assertEqual(list(self.prefix.rglob("*.a")), [])
        self.assertNotIn("yaml", run("readelf", "-d", self.consumer))


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[4] not in ("Static", "Shared"):
        sys.exit(__doc__)
    Installed.cmake, Installed.build, Installed.compiler = sys.argv[1:4]
    suite = unittest.defaultTestLoader.loadTestsFromTestCase({"Static": Static, "Shared": Shared}[sys.argv[4]])
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
