"""The driver calls of one session of Numba, on its own memory manager and on emmctl's default:profile=numba, are the
same ones. Runs itself in two processes on the stand-in for libcuda.so.1, whose log is compared."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

# What changes memory. Questions, copies, streams and events are the program's own.
CALL = re.compile(r"(mem_alloc|mem_alloc_managed|mem_free|mem_host_alloc|mem_free_host|mem_host_register|"
                  r"mem_host_unregister|ipc_get_mem_handle)\((.*)")


def calls_of(log):
    """With addresses by the order in which they first came."""
    names = {}
    return [re.sub("0x[0-9a-f]+", lambda m: "#%d" % names.setdefault(m.group(), len(names) + 1), line)
            for line in log.read_text().splitlines() if CALL.match(line)]


def session_on(manager, log):
    environment = dict(os.environ, EMM_STANDIN_LOG=str(log))
    done = subprocess.run([sys.executable, __file__, "--session", manager], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    if done.returncode != 0:
        raise AssertionError("the session on %s ended with %d:\n%s" % (manager, done.returncode, done.stdout))
    return calls_of(log)


class DriverCalls(unittest.TestCase):
    def test_are_those_of_numbas_own_manager(self):
        with tempfile.TemporaryDirectory() as folder:
            theirs = session_on("numba", pathlib.Path(folder) / "numba.log")
            ours = session_on("default:profile=numba", pathlib.Path(folder) / "emmctl.log")
        self.assertGreater(len(theirs), 150)
        self.assertEqual(theirs, ours)


def run_session(manager):
    import gc

    import numba_session as session
    from numba import cuda
    if manager != "numba":
        import emmctl.numba
        assert emmctl.numba.use(manager) == manager
    for part in (session.arrays, session.host_memory, session.streams, session.many_frees, session.large_frees,
                 session.deferred, session.out_of_memory, session.other_process, session.reset):
        part()
        gc.collect()
    cuda.close()
    cuda.device_array(10)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--session"]:
        run_session(sys.argv[2])
    else:
        try:
            import numba.cuda  # noqa: F401
        except ImportError as error:
            print("skipped: no Numba for %s: %s" % (sys.executable, error))
            sys.exit(77)
        unittest.main()
