#!/usr/bin/env python3
"""The packages work in an empty folder: packages_test.py BUILD SOURCE

Makes the .deb, the .tar.gz and the wheel of a build, unpacks each into a folder of its own, and does there what their users
do, with nothing of the source tree at hand.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
GLIBC = "2.34"  # as docs/install.md and the .deb say


def run(*command, folder=None, **variables):
    hidden = ("PYTHONPATH", "EMM_LIBRARY", "CMAKE_PREFIX_PATH")
    environment = {key: value for key, value in os.environ.items() if key not in hidden} | variables
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{command} exits with {done.returncode}:\n{done.stdout}")
    return done.stdout


def needed_glibc(path):
    versions = re.findall(r"GLIBC_([0-9.]+)", run("objdump", "-T", path))
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-packages-"))
        for kind in ("DEB", "TGZ"):
            run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", kind, "-B", cls.folder)
        run("cmake", "--install", BUILD, "--prefix", cls.folder / "prefix", "--strip")
        run(sys.executable, "-c", "import sys, emmctl_backend; emmctl_backend.build_wheel(sys.argv[1])", cls.folder,
            EMM_PREFIX=str(cls.folder / "prefix"), PYTHONPATH=str(SOURCE / "tools/python/build_backend"),
            PYTHONDONTWRITEBYTECODE="1")
        shutil.rmtree(cls.folder / "prefix")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def only(self, pattern):
        found = list(self.folder.glob(pattern))
        self.assertEqual(len(found), 1, found)
        return found[0]

    def journeys(self, emmctl, prefix):
        """What the front page shows, with the examples of the package where it has them."""
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        examples = prefix / "share/doc/emmctl/examples"
        if not examples.exists():
            examples = place
            shutil.copy(SOURCE / "tests/golden/inputs/torch_oom.pickle.gz", place / "oom.pickle.gz")
        self.assertIn("A request of 156.50 MiB", run(emmctl, "explain", examples / "oom.pickle.gz"))
        self.assertIn("served", run(emmctl, "compare", examples / "oom.pickle.gz", "--manager", "pool", "--device", "sim"))
        run(emmctl, "report", examples / "oom.pickle.gz", "-o", place / "page.html")
        run(emmctl, "plugin", "new", "mine", folder=place)
        run("cmake", "-S", "mine", "-B", "built", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", folder=place)
        run("cmake", "--build", "built", folder=place)
        self.assertIn(" 0 failed", run(emmctl, "conformance", "--manager", "built/libemm-mine.so", "--device", "sim", folder=place))
        self.assertIn("ok", run(emmctl, "doctor"))

    def test_the_deb_has_all_and_says_what_it_needs(self):
        root = self.folder / "root"
        deb = self.only("*.deb")
        run("dpkg-deb", "-x", deb, root)
        emmctl = root / "usr/bin/emmctl"
        self.assertIn(f"libc6 (>= {GLIBC})", run("dpkg-deb", "-f", deb, "Depends"))
        for file in [emmctl, *root.rglob("*.so*")]:
            self.assertLessEqual([int(part) for part in needed_glibc(file).split(".")], [int(part) for part in GLIBC.split(".")], file)
        self.assertNotIn("libstdc++", run("objdump", "-p", emmctl))
        self.journeys(emmctl, root / "usr")
        python = run(sys.executable, "-c", "import emmctl; print(emmctl.library_path()); print(emmctl.prefix())",
                     PYTHONPATH=str(root / "usr/lib/python3/dist-packages"))
        self.assertEqual(python.split(), [str(root / "usr/lib/libemm.so"), str(root / "usr")])

    def test_each_public_header_compiles_by_itself(self):
        root = self.folder / "headers"
        run("dpkg-deb", "-x", self.only("*.deb"), root)
        include = root / "usr/include/emmctl"
        headers = list(include.rglob("*.hpp"))
        self.assertGreater(len(headers), 20)
        for header in headers:
            run("c++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", include, header)

    def test_apt_would_install_the_deb(self):
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            self.skipTest("not root on a Debian")
        said = run("apt-get", "install", "--simulate", "--no-install-recommends", self.only("*.deb"))
        self.assertIn("Inst emmctl", said)

    def test_the_tarball_runs_wherever_it_is_moved(self):
        run("tar", "-xf", self.only("*.tar.gz"), "-C", self.folder)
        moved = self.folder / "some where else"
        next(path for path in self.folder.glob("emmctl_*") if path.is_dir()).rename(moved)
        self.journeys(moved / "bin/emmctl", moved)

    def test_the_wheel_has_the_program_and_the_library(self):
        try:
            run(sys.executable, "-m", "venv", self.folder / "venv")
        except AssertionError:
            self.skipTest("this Python makes no environment")
        run(self.folder / "venv/bin/pip", "install", "--quiet", "--no-index", self.only("*.whl"))
        python = self.folder / "venv/bin/python"
        prefix = pathlib.Path(run(python, "-c", "import emmctl; print(emmctl.prefix())").strip())
        self.journeys(self.folder / "venv/bin/emmctl", prefix)
        self.assertIn(str(prefix), run(python, "-c", "import emmctl; print(emmctl.library_path())"))
        self.assertIn("emmctl 0", run(python, "-m", "emmctl", "--version"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
