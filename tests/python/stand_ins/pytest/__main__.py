import json
import os
import sys

if "EMM_TEST_PYTEST_ENDS" in os.environ:
    sys.exit(os.environ["EMM_TEST_PYTEST_ENDS"])
manager = os.environ.get("EMM_MEMORY_MANAGER", "builtin")
plugin = "NUMBA_CUDA_MEMORY_MANAGER" in os.environ
again = any("::" in argument for argument in sys.argv)
rows = {
    "cudadrv/test_a.py::TestA::test_passes": "passed",
    "cudadrv/test_deallocations.py::TestDeallocation::test_exception": "skipped" if plugin else "passed",
    "cudadrv/test_a.py::TestA::test_fails": "failed",
    "cudadrv/test_b.py::TestB::test_of_memory": "failed" if manager == "cudart" else "passed",
    "cudapy/test_ipc.py::TestIpc::test_is_late": "failed" if manager == "pool" and not again else "passed",
}
with open(os.environ["NUMBA_SUITE_OUTCOMES"], "a") as file:
    for test, outcome in rows.items():
        if not again or any(test in argument for argument in sys.argv):
            file.write(json.dumps({"test": test, "outcome": outcome, "when": "call", "words": "as told"}) + "\n")
