"""The package as pip installs it, offline, from the checkout; and how it finds its library."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "python"


def run(command, **variables):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "EMM_LIBRARY")}
    environment.update(variables)
    done = subprocess.run([str(c) for c in command], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    return done.returncode, done.stdout


ASKS = "import emmctl; print(emmctl.library_path()); print([m[0] for m in emmctl.bundled_managers()])"


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-package-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def test_pip_installs_it_with_its_library_and_without_a_network(self):
        if run([sys.executable, "-m", "pip", "--version"])[0] != 0:
            self.skipTest("there is no pip")
        copy = self.folder / "source"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        code, said = run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target",
                          self.folder / "site", copy], EMM_LIBRARY=os.environ["EMM_LIBRARY"])
        self.assertEqual(code, 0, said)

        code, said = run([sys.executable, "-c", ASKS], PYTHONPATH=str(self.folder / "site"))

        self.assertEqual(code, 0, said)
        self.assertIn(str(self.folder / "site" / "emmctl" / "libemm.so"), said)
        self.assertIn("'pool'", said)

    def test_a_library_that_is_not_there_is_said_with_how_to_get_it(self):
        code, said = run([sys.executable, "-c", ASKS], PYTHONPATH=str(PACKAGE), EMM_LIBRARY="/nowhere/libemm.so")
        self.assertNotEqual(code, 0)
        self.assertIn("emmctl needs libemm.so: /nowhere/libemm.so", said)
        self.assertIn("--target libemm", said)

    def test_importing_it_loads_no_library_and_no_framework(self):
        code, said = run([sys.executable, "-c", "import sys, emmctl, emmctl.record; print(emmctl._library._loaded, "
                          "[m for m in ('numba', 'cupy', 'torch', 'numpy') if m in sys.modules])"],
                         PYTHONPATH=str(PACKAGE))
        self.assertEqual((code, said.strip()), (0, "None []"))

    def test_what_frameworks_call_alike_is_one_manager(self):
        said = "import emmctl; print(emmctl.use('pool', exportable=True), emmctl.use('pool'), emmctl.use())"
        code, words = run([sys.executable, "-c", said], PYTHONPATH=str(PACKAGE), EMM_LIBRARY=os.environ["EMM_LIBRARY"])
        self.assertEqual((code, words.split()), (0, 3 * ["pool:backing=cumem"]))

    def test_its_version_is_the_projects(self):
        root = PACKAGE.parent.parent
        project = (root / "CMakeLists.txt").read_text().split("VERSION ")[2].split()[0]
        self.assertIn('version = "%s"' % project, (PACKAGE / "pyproject.toml").read_text())
        self.assertIn('__version__ = "%s"' % project, (PACKAGE / "emmctl" / "__init__.py").read_text())


if __name__ == "__main__":
    unittest.main()
