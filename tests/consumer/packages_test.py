#!/usr/bin/env python3
"""The packages work in an empty folder: packages_test.py BUILD SOURCE [Packages|Services]

Makes the .deb, the .tar.gz and the wheel of a build, unpacks each into a folder of its own, and does there what their users
do, with nothing of the source tree at hand. Services runs the steps of the CI templates with the tarball.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

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
        self.assertIn("a request of 157 MiB", run(emmctl, "explain", examples / "oom.pickle.gz"))
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


class Pipeline:
    """The steps of a CI service, run by bash in an empty folder: what it checks out is there, and apt-get does nothing."""

    def __init__(self, folder, **variables):
        self.folder, self.log, self.failed = folder, "", False
        stub = folder / ".bin"
        stub.mkdir()
        (stub / "apt-get").write_text("#!/bin/sh\n")
        (stub / "apt-get").chmod(0o755)
        self.path_file = folder / ".path"
        self.path_file.write_text("")
        self.environment = {"PATH": f"{stub}:/usr/bin:/bin", "HOME": str(folder), "GITHUB_PATH": str(self.path_file),
                            "RUNNER_TEMP": str(folder / ".temp"), "LC_ALL": "C.UTF-8"} | variables

    def step(self, words, always=False, **variables):
        if self.failed and not always:
            return
        added = ":".join(reversed(self.path_file.read_text().split()))
        environment = self.environment | variables
        environment["PATH"] = ":".join(filter(None, [added, environment["PATH"]]))
        done = subprocess.run(["bash", "-e", "-c", words], cwd=self.folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, timeout=300)
        self.log += f"$ {words}\n{done.stdout}"
        self.failed |= done.returncode != 0

    def github(self, steps, **given):
        """`given` are values of ${{ NAME }}, with underscores for dots and dashes."""
        def filled(text):
            return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda match: given[re.sub("[.-]", "_", match[1])], text)

        for step in steps:
            if "run" in step:
                self.step(filled(step["run"]), always=step.get("if") == "always()",
                          **{name: filled(value) for name, value in step.get("env", {}).items()})

    def gitlab(self, job):
        self.step("\n".join([*job.get("before_script", []), *job["script"]]), **job.get("variables", {}) | self.environment)
        for words in job.get("after_script", []):
            self.step(words, always=True)


@unittest.skipIf(yaml is None, "this Python has no yaml")
class Services(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-services-"))
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "TGZ", "-B", cls.folder)
        cls.package = "file://" + str(next(cls.folder.glob("*.tar.gz")))
        cls.emmctl = BUILD / "bin/emmctl"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def project(self):
        """A new plugin's project, as a service checks it out."""
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        run(self.emmctl, "plugin", "new", "mine", folder=place)
        return place / "mine"

    def built(self):
        place = self.project()
        run("cmake", "-S", ".", "-B", "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix()}", folder=place)
        run("cmake", "--build", "build", folder=place)
        run(self.emmctl, "compare", "first.json", "--manager", "build/libemm-mine.so", "--device", "sim", "--json", "baseline.json",
            folder=place)
        return place

    def prefix(self):
        prefix = self.folder / "prefix"
        if not prefix.exists():
            prefix.mkdir()
            run("tar", "-xf", self.package.removeprefix("file://"), "-C", prefix, "--strip-components=1")
        return prefix

    def thriftier(self, baseline):
        """The baseline, with less reserved than there was."""
        text = baseline.read_text()
        baseline.write_text(re.sub(r'"peak_reserved_bytes": ?(\d+)', lambda match: '"peak_reserved_bytes":%d' % (int(match[1]) // 2), text))

    def look(self, pipeline, folder, failed):
        self.assertEqual(pipeline.failed, failed, pipeline.log)
        self.assertIn("<testsuite", (pipeline.folder / folder / "verdict.xml").read_text())
        self.assertIn("<html", (pipeline.folder / folder / "page.html").read_text())

    def test_the_workflow_of_a_new_project_judges_it(self):
        for gate, failed in ((False, False), (True, True)):
            place = self.built() if gate else self.project()
            if gate:
                self.thriftier(place / "baseline.json")
                shutil.rmtree(place / "build")
            pipeline = Pipeline(place)
            job = yaml.safe_load((place / ".github/workflows/emmctl.yml").read_text())["jobs"]["verdict"]
            pipeline.github(job["steps"], vars_EMMCTL_PACKAGE=self.package)
            self.look(pipeline, "verdict", failed)
            shutil.rmtree(place)

    def test_the_pipeline_of_a_new_project_judges_it(self):
        place = self.project()
        pipeline = Pipeline(place, EMMCTL_PACKAGE=self.package)
        pipeline.gitlab(yaml.safe_load((place / ".gitlab-ci.yml").read_text())["verdict"])
        self.look(pipeline, "verdict", False)

    def test_the_action_judges_compares_and_gates(self):
        steps = yaml.safe_load((SOURCE / "tools/ci/github/action.yml").read_text())["runs"]["steps"]
        for gate in (False, True):
            place = self.built()
            if gate:
                self.thriftier(place / "baseline.json")
            pipeline = Pipeline(place)
            pipeline.github(steps, inputs_package=self.package, inputs_manager="build/libemm-mine.so", inputs_traces="first.json",
                            inputs_baseline="baseline.json", inputs_fail_if="reserved > 1.02x")
            self.look(pipeline, "emmctl-verdict", gate)

    def test_a_manager_that_breaks_a_rule_fails_the_job_and_has_its_page(self):
        steps = yaml.safe_load((SOURCE / "tools/ci/github/action.yml").read_text())["runs"]["steps"]
        place = self.project()
        pipeline = Pipeline(place)
        pipeline.github(steps, inputs_package=self.package, inputs_manager=f"{BUILD}/tests/plugins/hostile.so:memalloc=misaligned",
                        inputs_traces="", inputs_baseline="", inputs_fail_if="reserved > 1.02x")
        self.look(pipeline, "emmctl-verdict", True)

    def test_the_template_for_gitlab_judges(self):
        job = yaml.safe_load((SOURCE / "tools/ci/gitlab.yml").read_text())[".emmctl"]
        pipeline = Pipeline(self.built(), EMMCTL_PACKAGE=self.package, EMMCTL_MANAGER="build/libemm-mine.so",
                            EMMCTL_TRACES="first.json", EMMCTL_BASELINE="baseline.json")
        pipeline.gitlab(job)
        self.look(pipeline, "emmctl-verdict", False)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
