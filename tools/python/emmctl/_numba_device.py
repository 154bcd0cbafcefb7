"""Which device a context of Numba's is on."""
from numba.cuda.cudadrv import driver as _drv


def ordinal(context):
    """A context that was made around somebody else's may have the driver's device, or anything, for its own."""
    device = getattr(context, "device", 0)
    device = getattr(device, "id", device)
    try:
        return int(device)
    except TypeError:
        with _drv.driver.get_active_context() as active:
            return active.devnum or 0
