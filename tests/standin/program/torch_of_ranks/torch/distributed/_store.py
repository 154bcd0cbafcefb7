"""Stores, whose values are files. The server of one waits for all ranks, as PyTorch's does."""
import os
import time


class Store:
    pass


class TCPStore(Store):
    def __init__(self, host_name, port, world_size=None, is_master=False, timeout=600, wait_for_workers=True, multi_tenant=False, use_libuv=True):
        self.folder = os.path.join(os.environ["MEET"], "store.%d" % port)
        if is_master:
            os.makedirs(self.folder)
        self._until(lambda: os.path.isdir(self.folder), timeout)
        if wait_for_workers and world_size is not None:
            self.set("came.%s" % os.environ["RANK"], b"")
            if is_master:
                self._until(lambda: sum(name.startswith("came.") for name in os.listdir(self.folder)) >= world_size, timeout)

    def _until(self, is_there, timeout=600):
        begun = time.monotonic()
        while not is_there():
            if time.monotonic() - begun > timeout:
                raise RuntimeError("timed out")
            time.sleep(0.005)

    def _path(self, key):
        return os.path.join(self.folder, key.replace("/", "|"))

    def set(self, key, value):
        part = self._path(key) + ".part.%d" % os.getpid()
        with open(part, "wb") as file:
            file.write(value)
        os.rename(part, self._path(key))

    def check(self, keys):
        return all(os.path.exists(self._path(key)) for key in keys)

    def wait(self, keys, timeout=600):
        self._until(lambda: self.check(keys), timeout)

    def get(self, key):
        self.wait([key])
        with open(self._path(key), "rb") as file:
            return file.read()


class FileStore(Store):
    pass


class HashStore(Store):
    pass


class PrefixStore(Store):
    def __init__(self, prefix, store):
        self.prefix, self.store = prefix, store

    def set(self, key, value):
        self.store.set(self.prefix + "/" + key, value)

    def get(self, key):
        return self.store.get(self.prefix + "/" + key)

    def check(self, keys):
        return self.store.check([self.prefix + "/" + key for key in keys])

    def wait(self, keys, timeout=600):
        self.store.wait([self.prefix + "/" + key for key in keys], timeout)
