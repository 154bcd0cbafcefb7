

# What only a class of Python's can do wrong. This text follows that of python_class.py. Each question asks one manager, which Numba
# made in a context of its own, and ends without an exception where the rule is kept.

QUESTIONS = {}
ELSEWHERE = "elsewhere"  # a question's answer: what it ended need not be back


class Broken(Exception):
    """The rule is broken. `because` is the exception of the class that shows it."""

    def __init__(self, done, seen, expected, because=None):
        super().__init__(done)
        self.done, self.seen, self.expected, self.because = done, seen, expected, because


class NotAsked(Exception):
    """The class does not have what the question is about."""


def question(identity):
    def keep(function):
        QUESTIONS[identity] = function
        return function
    return keep


def is_of_numba(kind):
    return kind.__module__.startswith(("numba.", "numba_cuda."))


def is_own(kind, name):
    """Whether a class of the user's, not of Numba's, has the method."""
    for each in kind.__mro__:
        if name in vars(each):
            return not is_of_numba(each)
    return False


def tried(done, action, expected="no exception"):
    """Does it. An exception of the class breaks the rule."""
    try:
        return action()
    except (Broken, NotAsked):
        raise
    except BaseException as error:  # noqa: B902: also SystemExit
        raise Broken(done, "%s: %s" % (type(error).__name__, error), expected, error)


def offered(action):
    """Does what a class may leave out."""
    try:
        return action()
    except NotImplementedError as error:
        raise NotAsked(str(error) or "the class does not offer it")
    except Exception as error:
        if status_of(error) == NOT_SUPPORTED:
            raise NotAsked(str(error))
        raise


@contextlib.contextmanager
def unraised(done, expected):
    """What a finalizer raises here breaks the rule. Python lets nothing out of it, and prints it."""
    raised = []
    before, sys.unraisablehook = sys.unraisablehook, lambda what: raised.append(what.exc_value)
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = before
    if raised:
        raise Broken(done, "%s: %s" % (type(raised[0]).__name__, raised[0]), expected, raised[0])


def some_memory(made, size=4096):
    return tried("memalloc(%d)" % size, lambda: made.context.memalloc(size), "memory")


def finalizer_of_memory(memory):
    found = getattr(memory, "_finalizer", None)
    if found is None:
        raise NotAsked("its memory has no finalizer")
    return found


def free_bytes():
    free = COUNT()
    ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(COUNT()))
    return free.value


def place_of(function):
    code = getattr(getattr(function, "func", function), "__code__", None)
    return "%s:%d" % (os.path.basename(code.co_filename), code.co_firstlineno) if code else "?"


def holders_of(thing):
    """Who keeps an object, in words."""
    gc.unfreeze()  # what was imported early keeps, too
    words = []
    for each in gc.get_referrers(thing):
        if isinstance(each, types.CellType):
            for function in gc.get_referrers(each):
                for owner in gc.get_referrers(function) if isinstance(function, tuple) else ():
                    if isinstance(owner, types.FunctionType):
                        words.append("the closure of %s() at %s" % (owner.__qualname__, place_of(owner)))
        elif isinstance(each, types.FrameType):
            if not each.f_code.co_filename.startswith("<"):
                words.append("a frame of %s() at %s:%d" % (each.f_code.co_name, os.path.basename(each.f_code.co_filename), each.f_lineno))
        elif isinstance(each, dict):
            for owner in gc.get_referrers(each):
                if getattr(owner, "__dict__", None) is each:
                    words.append("%s.%s" % (type(owner).__name__, next((k for k, v in each.items() if v is thing), "?")))
            words.append("a dict with the key %r" % next((k for k, v in each.items() if v is thing), "?"))
        elif isinstance(each, (list, set)) and len(each) < 1000:
            words.append("a %s of %d" % (type(each).__name__, len(each)))
    return words


@question("BASE-5")
def base_init(made):
    kind = type(made.manager)
    if not is_own(kind, "__init__"):
        raise NotAsked("the class has no __init__ of its own")
    manager = tried("%s(context=context)" % kind.__name__, lambda: kind(context=made.context))
    done = "%s(context=context)" % kind.__name__
    if getattr(manager, "context", None) is not made.context:
        raise Broken(done, "self.context is %r" % (getattr(manager, "context", "missing"),),
                     "the context, which the __init__ of Numba's class sets")
    if isinstance(manager, drv.HostOnlyCUDAMemoryManager):
        for name in ("allocations", "deallocations"):
            if not hasattr(manager, name):
                raise Broken(done, "no self.%s" % name, "what the __init__ of HostOnlyCUDAMemoryManager makes")


@question("class/registers")
def registers(made):
    kind = type(made.manager)
    before = drv._memory_manager
    try:
        tried("set_memory_manager(%s)" % kind.__name__, lambda: drv.set_memory_manager(kind))
        if drv._memory_manager is not kind:
            raise Broken("set_memory_manager(%s)" % kind.__name__, "another class is registered", kind.__name__)
    finally:
        drv._memory_manager = before
    version = made.manager.interface_version
    if isinstance(version, bool) or not isinstance(version, int):
        raise Broken("interface_version", repr(version), "1, an int")


@question("class/initialize")
def base_initialize(made):
    kind, manager = type(made.manager), made.manager
    if not is_own(kind, "initialize"):
        raise NotAsked("initialize() is Numba's")
    manager.initialize()
    before = dict(vars(manager))
    tried("initialize(), a second time", manager.initialize)
    for name, thing in vars(manager).items():
        if name in before and thing is not before[name] \
                and not isinstance(thing, (int, float, str, bytes, tuple, type(None))):
            raise Broken("initialize(), a second time", "self.%s is another %s" % (name, type(thing).__name__),
                         "the one of before: Numba calls initialize() with each array")
    if issubclass(kind, drv.NumbaCUDAMemoryManager) and not int(made.manager.deallocations.memory_capacity):
        raise Broken("initialize()", "deallocations.memory_capacity is not set", "the total memory of the device")


@question("RST-4")
def base_reset(made):
    manager = made.manager
    if not isinstance(manager, drv.HostOnlyCUDAMemoryManager):
        raise NotAsked("the class is not over HostOnlyCUDAMemoryManager")
    memory = offered(lambda: made.context.memhostalloc(4096, True))
    if not len(manager.allocations):
        raise NotAsked("its mapped memory is not recorded by Numba")
    tried("reset(), while mapped memory lives", manager.reset)
    left = len(manager.allocations)
    del memory
    if left:
        raise Broken("reset(), while mapped memory lives", "%d allocations are recorded" % left,
                     "none: reset() of HostOnlyCUDAMemoryManager clears them")


@question("class/reset")
def resets_at_any_time(made):
    with another_context(made) as context:
        manager = context.memory_manager
        tried("reset(), before initialize()", manager.reset)
        tried("initialize(), after reset()", context.prepare_for_use)
        memory = tried("memalloc(4096), after reset()", lambda: context.memalloc(4096), "memory")
        tried("reset(), while memory lives", manager.reset)
        del memory
        tried("reset(), the end of memory of before it, then memalloc(4096)", lambda: context.memalloc(4096), "memory")
        tried("reset(), a second time", manager.reset)
        tried("memalloc(4096), after initialize(), reset() twice and initialize()",
              lambda: context.prepare_for_use() or context.memalloc(4096), "memory")


@question("DFR-4")
def base_guard(made):
    manager = made.manager
    pending = getattr(manager, "deallocations", None)
    if not isinstance(manager, drv.HostOnlyCUDAMemoryManager) or pending is None:
        raise NotAsked("the class is not over HostOnlyCUDAMemoryManager")
    guard = tried("defer_cleanup()", manager.defer_cleanup)
    tried("entering defer_cleanup()", guard.__enter__)
    held = pending.is_disabled
    tried("leaving defer_cleanup()", lambda: guard.__exit__(None, None, None))
    if not held:
        raise Broken("with defer_cleanup(): ...", "Numba's frees of host memory are not held",
                     "held: defer_cleanup() of HostOnlyCUDAMemoryManager is entered")
    if pending.is_disabled:
        raise Broken("after with defer_cleanup(): ...", "Numba's frees of host memory are held for ever", "not held")


class Probe(Exception):
    pass


def is_memory(address):
    """Whether the driver has memory there."""
    return ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2(ctypes.byref(U64()), ctypes.byref(COUNT()), U64(address)) == SUCCESS


def comes_back(made, size=3 << 20):
    """Whether memory that ends goes back to the driver, or serves again, once Numba's queues are emptied."""
    memory = some_memory(made, size)
    address = device_address(memory)
    del memory
    gc.collect(0)
    for queue in queues_of(made.manager):
        queue.clear()
    made.context.synchronize()
    return not is_memory(address) or device_address(some_memory(made, size)) == address


@question("class/guard")
def guard_is_one(made):
    manager, did_come_back = made.manager, comes_back(made)
    guard = tried("defer_cleanup()", manager.defer_cleanup)
    if not hasattr(guard, "__enter__") or not hasattr(guard, "__exit__"):
        raise Broken("defer_cleanup()", repr(type(guard).__name__), "a context manager, as contextlib.contextmanager makes one")

    def used(inside):
        with manager.defer_cleanup():
            inside()
    tried("with defer_cleanup(): pass", lambda: used(lambda: None))
    tried("with defer_cleanup(): with defer_cleanup(): pass", lambda: used(lambda: used(lambda: None)))

    def raises():
        raise Probe("raised by the program")
    try:
        used(raises)
    except Probe:
        pass
    except BaseException as error:  # noqa: B902
        raise Broken("with defer_cleanup(): raise ...", "%s: %s" % (type(error).__name__, error), "the program's exception", error)
    else:
        raise Broken("with defer_cleanup(): raise ...", "no exception: it is swallowed", "the program's exception")
    if any(queue.is_disabled for queue in queues_of(manager)):
        raise Broken("after with defer_cleanup(): raise ...", "Numba's frees are held for ever", "not held")
    if did_come_back and not comes_back(made):
        raise Broken("after with defer_cleanup(): raise ..., memory that ends", "it is neither freed nor serves again",
                     "it comes back, as before")


@question("INF-7")
def info_is_one(made):
    info = offered(made.context.get_memory_info)
    if not (isinstance(info, tuple) and hasattr(info, "free") and hasattr(info, "total")):
        raise Broken("get_memory_info()", repr(info)[:200], "a numba.cuda.MemoryInfo, with free and total")
    for name, number in (("free", info.free), ("total", info.total)):
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise Broken("get_memory_info().%s" % name, repr(number), "an int: programs compare and add it")


@question("PTR-14")
def pointer_is_used(made):
    size = 4096
    memory = some_memory(made, size)
    told = bytes(range(256)) * (size // 256)
    source, target = ctypes.create_string_buffer(told, size), ctypes.create_string_buffer(size)
    tried("memalloc(%d), then a copy to it" % size, lambda: drv.host_to_device(memory, source, size))
    tried("memalloc(%d), then a copy from it" % size, lambda: drv.device_to_host(target, memory, size))
    if target.raw != told:
        raise Broken("memalloc(%d), then a copy to it and back" % size, "other bytes", "the same bytes")
    part = tried("memalloc(%d), then view(256, 512)" % size, lambda: memory.view(256, 512))
    tried("a copy from view(256, 512)", lambda: drv.device_to_host(target, part, 256))
    if target.raw[:256] != told[256:512]:
        raise Broken("a copy from view(256, 512)", "other bytes", "those of the slice")
    tried("device_memset of view(256, 512)", lambda: drv.device_memset(part, 1, 256))
    tried("device_extents of the memory", lambda: drv.device_extents(memory))
    if "context" in inspect.signature(drv.MemoryPointer.__init__).parameters and memory.context is None:
        raise Broken("memalloc(%d).context" % size, "None", "the context that was asked")
    with another_context(made) as context:
        context.prepare_for_use()
        other = tried("memalloc(%d) in another context" % size, lambda: context.memalloc(size), "memory")
        if getattr(other.context, "memory_manager", context.memory_manager) is not context.memory_manager:
            raise Broken("memalloc(%d) in another context, .context" % size, "the context of another manager", "the context that was asked")
        del other
    pointer = memory.device_ctypes_pointer
    if not hasattr(pointer, "value"):
        raise Broken("memalloc(%d).device_ctypes_pointer" % size, repr(pointer),
                     "a ctypes value: kernels take its address")


@question("class/slice_end")
def slice_frees_nothing(made):
    memory = some_memory(made)
    finalizer = finalizer_of_memory(memory)
    part = memory.view(0, 16)
    del part
    gc.collect()
    if not finalizer.alive:
        raise Broken("memalloc(4096), then the end of a slice of it", "the memory was freed",
                     "memory: the array under the slice lives")


@question("class/end")
def ends_with_its_object(made):
    memory = some_memory(made)
    finalizer, alive = getattr(memory, "_finalizer", None), weakref.ref(memory)
    del memory
    gc.collect()
    base = finalizer.peek()[0] if finalizer is not None and finalizer.alive else alive()
    if base is not None:
        words = holders_of(base)
        raise Broken("memalloc(4096), then the end of its last reference",
                     "it lives%s: %s keeps it" % (", and its finalizer has not run" if finalizer else "",
                                                  " and ".join(words[:2]) if words else "something"), "the memory ends")


@contextlib.contextmanager
def but_for(room):
    """The device but for `room` bytes is taken."""
    libcuda, taken, size = ctypes.CDLL("libcuda.so.1"), [], free_bytes()
    while free_bytes() > room and size >= 1 << 20:
        size, block = min(size, free_bytes() - room), U64()
        if libcuda.cuMemAlloc_v2(ctypes.byref(block), COUNT(size)) == SUCCESS:
            taken.append(block)
        else:
            size //= 2
    try:
        yield
    finally:
        for block in taken:
            libcuda.cuMemFree_v2(block)


@question("class/room")
def room_serves_other_sizes(made, room=64 << 20):
    def fill(sizes):
        """The bytes of blocks that are had until memory is out. All of them end."""
        held, bytes_held = [], 0
        try:
            while bytes_held < 4 * room:
                size = sizes[len(held) % len(sizes)]
                held.append(made.context.memalloc(size))
                bytes_held += size
        except Exception:
            pass  # what is raised is asked elsewhere
        held.clear()
        gc.collect(0)
        return bytes_held
    with but_for(room):
        first = min(fill((100 << 10, 36 << 10, 7 << 10)), room)
        if first < room // 4:
            raise NotAsked("it gives %d bytes where the device has %d" % (first, room))
        done = "blocks of 7 to 100 KiB until memory is out, and the end of them all, then "
        again = fill((200 << 10, 20 << 10))
        if again < first // 2:
            raise Broken(done + "blocks of 20 and 200 KiB", "%d bytes where there were %d" % (again, first),
                         "about as many: nothing else lives")
        tried(done + "memalloc(%d), a quarter" % (first // 4), lambda: made.context.memalloc(first // 4), "memory: nothing else lives")


@contextlib.contextmanager
def another_context(made, device=None):
    """Another context of Numba's, on the device or another, with a manager of its own that is not initialized."""
    before, drv._memory_manager = drv._memory_manager, type(made.manager)
    try:
        context = drv.Context(device or made.device, primary_handle(device) if device else made.context.handle)
    finally:
        drv._memory_manager = before
    yield context
    context.reset()


@question("class/devices")
def memory_is_of_its_device(made):
    others = [each for each in range(drv.driver.get_device_count()) if each != made.device.id]
    if not others:
        raise NotAsked("there is one device")
    size = 3 << 20
    memory = some_memory(made, size)
    freed = device_address(memory)
    del memory
    gc.collect(0)
    if not is_memory(freed):
        return  # the driver has it back
    with another_context(made, drv.driver.get_device(others[0])) as context:
        context.push()
        done = "memalloc(%d) and its end on a device, then memalloc(%d) in a context of another" % (size, size)
        memory = tried(done, lambda: context.memalloc(size), "memory")
        if freed <= device_address(memory) < freed + size:
            raise Broken(done, "the first device's memory", "memory of the device whose context asks")
        del memory
        context.pop()


def contexts_of_thread():
    """The thread's contexts, as numbers, the current one last."""
    libcuda, handle, popped = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), []
    while libcuda.cuCtxPopCurrent_v2(ctypes.byref(handle)) == SUCCESS and handle.value:
        popped.insert(0, handle.value)
    for each in popped:
        libcuda.cuCtxPushCurrent_v2(ctypes.c_void_p(each))
    return popped


@question("class/contexts")
def contexts_are_left_alone(made):
    held, buffer = [], ctypes.create_string_buffer(3 * 4096)
    pointer = ctypes.addressof(buffer) + 4095 & ~4095

    def deferred():
        with made.manager.defer_cleanup():
            pass
    for done, action in (("initialize()", made.manager.initialize),
                         ("memalloc(4096)", lambda: held.append(made.context.memalloc(4096))),
                         ("get_ipc_handle()", lambda: made.context.get_ipc_handle(held[0])),
                         ("the end of memory", held.clear),
                         ("memalloc(%d), which no device has" % (1 << 46), lambda: made.context.memalloc(1 << 46)),
                         ("memhostalloc(4096, mapped=True) and its end", lambda: made.context.memhostalloc(4096, True)),
                         ("mempin(owner, pointer, 4096) and its end", lambda: made.context.mempin(buffer, pointer, 4096)),
                         ("get_memory_info()", made.context.get_memory_info), ("defer_cleanup() and its end", deferred),
                         ("reset()", made.manager.reset)):
        before = contexts_of_thread()
        try:
            action()
        except Exception:
            pass  # what may be raised is asked elsewhere
        gc.collect(0)
        after = contexts_of_thread()
        if after != before:
            what = "another context is current" if after[-1:] != before[-1:] else "%d more are below it" % (len(after) - len(before))
            raise Broken(done, "%s" % what, "the thread's contexts as they were")


@question("class/collected")
def manager_is_collected(made):
    with another_context(made) as context:
        context.prepare_for_use()
        memory = tried("memalloc(4096)", lambda: context.memalloc(4096), "memory")
        manager = weakref.ref(context.memory_manager)
        del memory
    del context
    gc.collect()
    if manager() is not None:
        words = holders_of(manager())
        raise Broken("the end of the context and of all memory", "the manager lives: %s keeps it"
                     % (" and ".join(words[:2]) if words else "something"), "it is collected")


@question("class/finalizer")
def finalizer_raises_nothing(made):
    with unraised("the end of memory", "no exception from its finalizer"):
        memory = some_memory(made)
        del memory
    with unraised("the end of memory after reset()", "no exception from its finalizer"):
        memory = some_memory(made)
        tried("reset(), while memory lives", made.manager.reset)
        del memory
    finalizer_inside_a_request(made, "memalloc(4096)", lambda: made.context.memalloc(4096))
    finalizer_inside_a_request(made, "get_memory_info()", made.context.get_memory_info)
    return ELSEWHERE


never_ended = []


def finalizer_inside_a_request(made, words, action, seconds=5):
    """The garbage collector may end memory at any line of the class. So each line of a request ends some here."""
    done, spare = words + ", in which the garbage collector ends other memory", []

    def end_one(frame, event, argument):
        if event == "line" and spare:
            spare.pop()
        return end_one

    def request():
        made.context.push()
        sys.settrace(lambda frame, event, argument: end_one if is_own_file(frame.f_code.co_filename) else None)
        try:
            action()
        except NotImplementedError:
            pass
        except BaseException as error:  # noqa: B902
            raised.append(error)
        finally:
            sys.settrace(None)
            made.context.pop()
    raised = []
    spare += [some_memory(made) for _ in range(30)]
    with unraised(done, "no exception from its finalizer"):
        thread = threading.Thread(target=request, daemon=True)
        thread.start()
        thread.join(seconds)
    if thread.is_alive():
        never_ended.extend(spare)  # their end would wait, too
        frame = sys._current_frames().get(thread.ident)
        while frame and not is_own_file(frame.f_code.co_filename):
            frame = frame.f_back
        raise Broken(done, "it does not end in %d s%s" % (seconds, ": it waits at " + line_at(frame.f_code, frame.f_lineno) if frame else ""),
                     "memory: a finalizer waits for no lock that a request holds")
    if raised:
        raise Broken(done, "%s: %s" % (type(raised[0]).__name__, raised[0]), "no exception", raised[0])
    spare.clear()


@question("class/threads")
def requests_are_apart(made, seconds=5):
    """Each line of a request lets another thread's request run whole, or as far as the class's locks let it."""
    done = "memalloc(4096), between two lines of which other threads make memalloc(4096) and memalloc(8192)"
    given, raised, threads = [], [], []
    some_of_each = [some_memory(made, 4096 << i % 2) for i in range(60)]
    del some_of_each  # where a class keeps blocks for later, there are some

    def request(size, trace=None):
        made.context.push()
        sys.settrace(trace)
        try:
            given.append((size, made.context.memalloc(size)))
        except BaseException as error:  # noqa: B902
            raised.append(error)
        finally:
            sys.settrace(None)
            made.context.pop()

    def let_another_in(frame, event, argument):
        # The same size may take what the first request has looked at; another leaves what the first did not ask for.
        for size in (4096, 8192) if event == "line" and len(threads) < 60 else ():
            threads.append(threading.Thread(target=request, args=(size,), daemon=True))
            threads[-1].start()
            threads[-1].join(0.05)  # it may wait for a lock
        return let_another_in
    first = threading.Thread(target=request, daemon=True,
                             args=(4096, lambda frame, event, argument: let_another_in if is_own_file(frame.f_code.co_filename) else None))
    first.start()
    for thread in [first] + threads:
        thread.join(seconds)
    for thread in threads:  # those that began while the first was waited for
        thread.join(seconds)
    if any(thread.is_alive() for thread in [first] + threads):
        raise Broken(done, "they do not end in %d s" % seconds, "memory for both")
    if raised:
        raise Broken(done, "%s: %s" % (type(raised[0]).__name__, raised[0]), "memory for both", raised[0])
    end = 0
    for address, size, memory in sorted(((device_address(memory), size, memory) for size, memory in given), key=lambda each: each[:2]):
        if memory.size != size:
            raise Broken(done, "memory of %d bytes for a request of %d" % (memory.size, size), "memory of the size that was asked for")
        if address < end:
            raise Broken(done, "memory of both at %#x" % address, "memory for each")
        end = address + size


@question("class/finalizer_thread")
def finalizer_on_a_thread(made):
    held = [some_memory(made)]

    def drop():
        held.clear()
        gc.collect()
    with unraised("the end of memory on a thread without a context", "no exception from its finalizer"):
        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
    return ELSEWHERE  # where no context is current, the free may fail


def in_a_child(action, seconds=10):
    """What `action` says in a forked child, and how the child ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        words = b"?"
        try:
            os.close(reader)
            words = (action() or "").encode()
        except BaseException as error:  # noqa: B902
            words = words_of(error).encode()
        finally:
            os.write(writer, words[:4000])
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], seconds)
    said = os.read(reader, 4096).decode(errors="replace") if ready else None
    os.close(reader)
    if not ready:
        os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    return said, status


def end_of_process(memory):
    """What Python does at its end with the memory that lives."""
    raised = []
    sys.unraisablehook = lambda what: raised.append(what.exc_value)
    sys.excepthook = lambda kind, error, trace: raised.append(error)
    weakref.finalize._exitfunc()
    return "; ".join(words_of(each) for each in raised[:1])


@question("class/finalizer_exit")
def finalizer_at_exit(made):
    memory = some_memory(made)
    for done, before in (("the end of the program, while memory lives", lambda: None),
                         ("reset(), then the end of the program, while memory lives", made.manager.reset)):
        before()  # here, since a child of fork() may not use CUDA
        said, status = in_a_child(lambda: end_of_process(memory))
        if said is None:
            raise Broken(done, "it does not end in 10 s", "an end")
        if status != 0 or said:
            raise Broken(done, said or "the process ended with status %d" % status, "no exception from its finalizer")


@question("class/fork")
def forked_child(made):
    held = [some_memory(made)]

    def drop():
        raised = []
        sys.unraisablehook = lambda what: raised.append(what.exc_value)
        held.clear()
        gc.collect()
        raised[:] = [each for each in raised if not isinstance(each, drv.CudaDriverError)]  # Numba's own: ERR-7
        return "; ".join(words_of(each) for each in raised[:1])
    said, status = in_a_child(drop)
    done = "the end of memory in a child of fork()"
    if said is None:
        raise Broken(done, "it does not end in 10 s", "an end")
    if status != 0 or said:
        raise Broken(done, said or "the child ended with status %d" % status, "no exception, and no end of the child")


NAMES = {"memalloc": ("size",), "memhostalloc": ("size", "mapped", "portable", "wc"),
         "mempin": ("owner", "pointer", "size", "mapped"), "memallocmanaged": ("size", "attach_global"),
         "get_ipc_handle": ("memory",)}


@question("class/keywords")
def takes_keywords(made):
    for name, arguments in NAMES.items():
        method = getattr(made.manager, name, None)
        if method is None or not is_own(type(made.manager), name):
            continue
        signature = inspect.signature(method)
        for done, bind in (("%s(%s)" % (name, ", ".join("%s=..." % each for each in arguments)),
                            lambda: signature.bind(**dict.fromkeys(arguments))),
                           ("%s(%s)" % (name, ", ".join(arguments)), lambda: signature.bind(*arguments))):
            try:
                bind()
            except TypeError as error:
                raise Broken(done, "TypeError: %s; it is %s%s at %s" % (error, name, signature, place_of(method)),
                             "the parameters of NBEP 7, by place and by name")


MISTAKES = (TypeError, AttributeError, LookupError, NameError, AssertionError, NotImplementedError, ArithmeticError,
            StopIteration)


@question("class/out_of_memory")
def out_of_memory_is_told(made):
    for size in (1 << 46, (1 << 63) + 1):  # the second is negative to 64 bits with a sign, and more than 64 bits have once it is rounded up
        expect_refusal(made, size)


def expect_refusal(made, size):
    done = "memalloc(%d), which no device has" % size
    try:
        memory = made.context.memalloc(size)
    except Exception as error:
        code = getattr(error, "code", None)
        if isinstance(error, drv.CudaAPIError) and int(code) not in (OUT_OF_MEMORY, INVALID_VALUE):
            raise Broken(done, "%s: %s" % (type(error).__name__, error), "CudaAPIError with the code 2", error)
        if isinstance(error, MISTAKES):
            raise Broken(done, "%s: %s" % (type(error).__name__, error),
                         "CudaAPIError with the code 2, or MemoryError: programs catch it", error)
    except BaseException as error:  # noqa: B902
        raise Broken(done, "%s: %s, which is no Exception" % (type(error).__name__, error), "CudaAPIError with the code 2", error)
    else:
        raise Broken(done, repr(memory), "an exception")


@question("class/zero")
def zero_bytes_are_told(made):
    done, expected = "memalloc(0)", "memory of 0 bytes, or an exception such as the driver's"
    try:
        memory = made.context.memalloc(0)
    except MISTAKES as error:
        raise Broken(done, "%s: %s" % (type(error).__name__, error), expected, error)
    except Exception:
        return
    if getattr(memory, "size", None) != 0:
        raise Broken(done, repr(memory) if memory is None else "memory of %r bytes" % getattr(memory, "size", None), expected)


@question("DEV-12")
def retry_is_told(made):
    manager = made.manager
    if not hasattr(manager, "_attempt_allocation") or not is_own(type(manager), "memalloc"):
        raise NotAsked("the class has no memalloc of its own over HostOnlyCUDAMemoryManager")
    raised, attempt = [], manager._attempt_allocation

    def spied(allocator):
        def spy():
            try:
                return allocator()
            except BaseException as error:  # noqa: B902
                raised.append(error)
                raise
        return attempt(spy)
    manager._attempt_allocation = spied
    try:
        made.context.memalloc(1 << 46)
    except BaseException:  # noqa: B902
        pass
    finally:
        del manager._attempt_allocation
    if not raised:
        raise NotAsked("its memalloc does not use _attempt_allocation")
    if not (isinstance(raised[0], drv.CudaAPIError) and int(raised[0].code) == OUT_OF_MEMORY):
        raise Broken("what memalloc() gives to _attempt_allocation(), out of memory",
                     "%s: %s" % (type(raised[0]).__name__, raised[0]),
                     "CudaAPIError with the code 2: Numba then frees what waits, and tries again", raised[0])


@question("class/ipc_handle")
def ipc_handle_is_whole(made):
    memory = some_memory(made, 1000)  # a size that a block's may be rounded up from
    handle = offered(lambda: made.context.get_ipc_handle(memory))
    if not isinstance(handle, drv.IpcHandle):
        raise Broken("get_ipc_handle(memory)", repr(type(handle).__name__), "a numba.cuda.IpcHandle")
    if handle.size != memory.size:
        raise Broken("get_ipc_handle(memory).size", repr(handle.size), str(memory.size))
    content = tried("pickling get_ipc_handle(memory)", lambda: pickle.loads(pickle.dumps(handle)))
    for name in ("size", "offset"):
        if getattr(content, name) != getattr(handle, name):
            raise Broken("get_ipc_handle(memory), pickled", "%s %r" % (name, getattr(content, name)), repr(getattr(handle, name)))
    if handle.source_info is not None and dict(handle.source_info) != dict(made.device.get_device_identity()):
        raise Broken("get_ipc_handle(memory).source_info", repr(handle.source_info), repr(made.device.get_device_identity()))
    for number in range(drv.driver.get_device_count()):
        if number == made.device.id:
            continue
        device = drv.driver.get_device(number)
        with another_context(made, device) as context:
            context.push()
            there = tried("memalloc(4096) on another device", lambda: context.memalloc(4096), "memory")
            told = context.get_ipc_handle(there).source_info
            del there
            context.pop()
        if told is not None and dict(told) != dict(device.get_device_identity()):
            raise Broken("get_ipc_handle(memory).source_info, on another device", repr(told), repr(device.get_device_identity()))
        break
    finalizer = finalizer_of_memory(memory)
    del memory
    gc.collect()
    if not finalizer.alive:
        raise Broken("get_ipc_handle(memory), then the end of memory", "the memory was freed",
                     "memory: the handle's base keeps it")


# The beginning of another program, which is given the manager's module, the class's name in it and the folder of the stand-ins.
PROGRAM = """
import ctypes, gc, importlib, marshal, os, pickle, sys, types
if sys.argv[3]:
    types.FunctionType(marshal.loads(bytes.fromhex(sys.argv[4])), globals())(sys.argv[3])
from numba import cuda
from numba.cuda.cudadrv import driver as drv
"""
NAMED = PROGRAM + """
importlib.import_module(sys.argv[1])
if drv.driver.is_initialized:
    sys.exit("the import has asked CUDA")
context = cuda.current_context()
memory = context.memalloc(4096)
print(type(context.memory_manager).__qualname__)
del memory
cuda.close()
"""
STAGED = PROGRAM + """
cuda.set_memory_manager(getattr(importlib.import_module(sys.argv[1]), sys.argv[2]))
if drv.driver.is_initialized:
    sys.exit("set_memory_manager() has asked CUDA")
opened = pickle.loads(sys.stdin.buffer.read()).open_staged(cuda.current_context())
gc.collect()
target = ctypes.create_string_buffer(1024)
drv.device_to_host(target, opened, opened.size)
print(opened.size, target.raw.hex())
"""


def in_another_program(made, text, done, expected, given=b"", seconds=25, **variables):
    """What a program of its own prints, which begins without CUDA and without the class."""
    folder = os.environ.get("EMM_STANDIN_FOLDER", "")
    command = [PYTHON, "-c", text, *found_under[type(made.manager)], folder, marshal.dumps(lead_to_standins.__code__).hex()]
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = TEXT
    device = getenv(b"EMM_STANDIN_DEVICE")  # it was set after Python had looked at the environment
    if device is not None:
        variables["EMM_STANDIN_DEVICE"] = device.decode()
    variables = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), PYTHONDONTWRITEBYTECODE="1", **variables)
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        try:
            told, words = program.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            works = works_still(program.pid)
            program.kill()
            program.communicate()
            if works:
                raise NotAsked("this machine is too busy: another program was not served in %d s" % seconds)
            raise Broken(done, "it does not end in %d s" % seconds, expected)
    if program.returncode != 0:
        words = words.decode(errors="replace").strip().splitlines()
        raise Broken(done, words[-1][:300] if words else "the program ended with %d" % program.returncode, expected)
    return told.decode(errors="replace").strip()


def works_still(process, enough=5):
    """Whether a process has work, and has had less of a processor than it needs to begin with Numba."""
    with open("/proc/%d/stat" % process) as file:
        state, *numbers = file.read().rpartition(") ")[2].split()
    return state in "RD" and (int(numbers[10]) + int(numbers[11])) / os.sysconf("SC_CLK_TCK") < enough


@question("class/named")
def is_found_by_its_name(made):
    kind = type(made.manager)
    module, _ = found_under[kind]
    if getattr(sys.modules[module], "_numba_memory_manager", None) is not kind:
        raise NotAsked("the class is not its module's _numba_memory_manager")
    done = "a program with NUMBA_CUDA_MEMORY_MANAGER=%s, which imports it and makes its first context" % module
    found = in_another_program(made, NAMED, done, "memory of %s" % kind.__qualname__, NUMBA_CUDA_MEMORY_MANAGER=module)
    if found.splitlines()[-1:] != [kind.__qualname__]:
        raise Broken(done, "its manager is %s" % found, kind.__qualname__)


@question("class/staged")
def opens_staged(made):
    memory = some_memory(made)
    told = bytes(range(256)) * 16
    drv.host_to_device(memory, ctypes.create_string_buffer(told, 4096), 4096)
    made.context.synchronize()  # what the other program reads is there
    part = memory.view(256, 1280)
    handle = offered(lambda: made.context.get_ipc_handle(part))
    if getattr(handle, "source_info", None) is None:
        raise Broken("get_ipc_handle(slice)", "a handle that names no device",
                     "source_info, the device's identity, without which no device that cannot reach it opens the handle")
    done, expected = "another program: get_ipc_handle(slice).open_staged(context), then a copy from it", "1024 bytes, those of the slice"
    found = in_another_program(made, STAGED, done, expected, pickle.dumps(handle)).splitlines()[-1:]
    if found != ["1024 " + told[256:1280].hex()]:
        raise Broken(done, "%s bytes, others" % found[0].split()[0] if found else "nothing", expected)


class Owner:
    """What owns pinned memory."""


@question("class/owner")
def owner_is_kept(made):
    if not is_own(type(made.manager), "mempin"):
        raise NotAsked("mempin() is Numba's")
    buffer = ctypes.create_string_buffer(3 * 4096)
    pointer = ctypes.addressof(buffer) + 4095 & ~4095
    for mapped in (False, True):
        owner = Owner()
        seen = weakref.ref(owner)
        memory = offered(lambda: made.context.mempin(owner, pointer, 4096, mapped))
        del owner
        gc.collect()
        done = "mempin(owner, pointer, 4096, %s), then the end of the program's owner" % mapped
        if seen() is None:
            raise Broken(done, "the owner was collected while it is pinned", "the memory keeps it")
        del memory
        gc.collect()
        if seen() is not None:
            raise Broken(done + ", then the end of the memory", "the owner lives", "it is collected")


@question("class/host_buffer")
def host_memory_is_a_buffer(made):
    buffer = ctypes.create_string_buffer(3 * 4096)
    pointer = ctypes.addressof(buffer) + 4095 & ~4095
    binding = getattr(drv, "USE_NV_BINDING", hasattr(drv, "binding"))
    requests = [("memhostalloc(4096, mapped=%s)" % mapped, mapped, lambda mapped=mapped: made.context.memhostalloc(4096, mapped))
                for mapped in (False, True)]
    requests += [("mempin(owner, pointer, 4096, mapped=%s)" % mapped, mapped,
                  lambda mapped=mapped: made.context.mempin(buffer, pointer if binding else ctypes.c_void_p(pointer), 4096, mapped))
                 for mapped in (False, True)]
    for done, mapped, request in requests:
        memory = offered(request)
        view = tried("memoryview of %s" % done, lambda: memoryview(memory), "a buffer, as MappedMemory(...).own() and PinnedMemory are")
        if view.nbytes != 4096:
            raise Broken("memoryview of %s" % done, "%d bytes" % view.nbytes, "4096")
        if bool(getattr(memory, "__cuda_memory__", False)) != mapped:
            raise Broken(done, "device memory" if not mapped else "no device memory",
                         "MappedMemory" if mapped else "PinnedMemory")
        view.release()
        del memory


SEPARATOR = "\x1e"


@ctypes.CFUNCTYPE(None, U64, TEXT)
def ask(number, identity):
    """Answers a question: "pass", and whether memory was ended elsewhere, "not asked", why, or "broken", what was done, seen and expected."""
    made, function = managers[number], QUESTIONS[identity.decode()]
    said.traceback = None
    begin_story(identity.decode())
    try:
        words = ["pass"] if function(made) is not ELSEWHERE else ["pass", ELSEWHERE]
    except NotAsked as why:
        words = ["not asked", str(why)]
    except Broken as broken:
        if broken.because is not None:
            said.traceback = traceback_of(broken.because)
        words = ["broken", broken.done, broken.seen, broken.expected]
    except BaseException as error:  # noqa: B902
        said.traceback = traceback_of(error)
        words = ["broken", function.__name__.replace("_", " "), "%s: %s" % (type(error).__name__, error), "no exception"]
    finally:
        end_story()
    said.answer = SEPARATOR.join(words)


@ctypes.CFUNCTYPE(COUNT, ANSWER, COUNT)
def answer(buffer, size):
    return put(said.answer or "", buffer, size)


kept += [ask, answer]
