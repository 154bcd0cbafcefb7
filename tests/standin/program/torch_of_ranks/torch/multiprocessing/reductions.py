class StorageWeakRef:
    pass
