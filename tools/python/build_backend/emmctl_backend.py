"""Builds the wheel of emmctl (PEP 517, PEP 660) with the standard library alone.

EMM_PREFIX names a folder that emmctl is installed in: program, libraries and headers then travel in the wheel, and
`emmctl` is a command. Else a built libemm.so does: that of EMM_LIBRARY, or of the checkout's build/release. Without
one the wheel is pure, and the library is looked for when it is first needed.
"""
import base64
import hashlib
import io
import os
import pathlib
import re
import sysconfig
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
NAME = "emmctl"


def _project(key):
    return re.search(r'^%s = "([^"]*)"' % key, (HERE / "pyproject.toml").read_text(), re.M).group(1)


def _library():
    named = os.environ.get("EMM_LIBRARY")
    path = pathlib.Path(named) if named else HERE.parent.parent / "build" / "release" / "lib" / "libemm.so"
    if named and not path.is_file():
        raise SystemExit("EMM_LIBRARY is %s, which is no file" % named)
    return path if path.is_file() else None


def _prefix():
    """The files of an installed emmctl, but for what the wheel has anyway and what links C++ programs."""
    prefix = pathlib.Path(os.environ["EMM_PREFIX"])
    if not (prefix / "bin" / "emmctl").is_file():
        raise SystemExit("EMM_PREFIX is %s, which has no bin/emmctl" % prefix)
    for path in sorted(prefix.rglob("*")):
        inside = path.relative_to(prefix)
        if path.is_file() and path.suffix != ".a" and "dist-packages" not in inside.parts and inside.parts[0] != "share":
            yield "%s/_installed/%s" % (NAME, inside), path.read_bytes()


def _metadata():
    return ("Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nRequires-Python: %s\nLicense: Apache-2.0\n"
            % (NAME, _project("version"), _project("description"), _project("requires-python")))


def _tag(library):
    if library is None:
        return "py3-none-any"
    return "py3-none-" + re.sub("[-.]", "_", sysconfig.get_platform())


def _wheel(folder, files, tag):
    """`files`: pairs of a path in the wheel and its bytes."""
    version = _project("version")
    info = "%s-%s.dist-info/" % (NAME, version)
    files = list(files) + [
        (info + "METADATA", _metadata().encode()),
        (info + "WHEEL", ("Wheel-Version: 1.0\nGenerator: %s\nRoot-Is-Purelib: %s\nTag: %s\n"
                          % (NAME, "true" if tag.endswith("-any") else "false", tag)).encode()),
    ]
    record = ""
    name = "%s-%s-%s.whl" % (NAME, version, tag)
    with zipfile.ZipFile(str(pathlib.Path(folder) / name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += "%s,sha256=%s,%d\n" % (path, digest, len(content))
            _put(wheel, path, content)
        _put(wheel, info + "RECORD", (record + info + "RECORD,,\n").encode())
    return name


def _put(wheel, path, content):
    entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))  # the same wheel of the same files
    runs = path.endswith((".so", "/bin/emmctl"))
    entry.external_attr = (0o100755 if runs else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, content)


def _sources():
    return sorted(p for p in (HERE / NAME).rglob("*.py") if "__pycache__" not in p.parts)


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_sdist = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = [(str(p.relative_to(HERE)), p.read_bytes()) for p in _sources()]
    if os.environ.get("EMM_PREFIX"):
        entry = ("%s-%s.dist-info/entry_points.txt" % (NAME, _project("version")),
                 b"[console_scripts]\nemmctl = emmctl.__main__:main\n")
        return _wheel(wheel_directory, files + list(_prefix()) + [entry], _tag(True))
    library = _library()
    if library is not None:
        files.append((NAME + "/libemm.so", library.read_bytes()))
    return _wheel(wheel_directory, files, _tag(library))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, [(NAME + ".pth", (str(HERE) + "\n").encode())], _tag(None))


def build_sdist(sdist_directory, config_settings=None):
    folder = "%s-%s" % (NAME, _project("version"))
    with tarfile.open(str(pathlib.Path(sdist_directory) / (folder + ".tar.gz")), "w:gz") as archive:
        for path in [HERE / "pyproject.toml", *sorted((HERE / "build_backend").glob("*.py")), *_sources()]:
            archive.add(str(path), "%s/%s" % (folder, path.relative_to(HERE)))
        info = tarfile.TarInfo(folder + "/PKG-INFO")
        info.size = len(_metadata())
        archive.addfile(info, io.BytesIO(_metadata().encode()))
    return folder + ".tar.gz"
