"""numpy 2.4 and 2.5 dropped names that `import numba` still looks for."""
try:
    import numpy
except ImportError:
    pass
else:
    for name, stands_for in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
        if not hasattr(numpy, name):
            setattr(numpy, name, getattr(numpy, stands_for))
