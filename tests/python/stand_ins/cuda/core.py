"""What emmctl.core needs of cuda.core: a buffer that gives itself back to its resource."""


class MemoryResource:
    pass


class Buffer:
    @classmethod
    def from_handle(cls, ptr, size, mr=None):
        self = cls()
        self.handle, self.size, self.mr = ptr, size, mr
        return self

    def close(self, stream=None):
        if self.handle:
            handle, self.handle = self.handle, 0
            self.mr.deallocate(handle, self.size, stream=stream)

    def __del__(self):
        self.close()


class Device:
    _resource = None
    device_id = 0

    @property
    def memory_resource(self):
        return Device._resource

    @memory_resource.setter
    def memory_resource(self, resource):
        if not isinstance(resource, MemoryResource):
            raise TypeError(resource)
        Device._resource = resource

    def allocate(self, size, *, stream):
        return self.memory_resource.allocate(size, stream=stream)
