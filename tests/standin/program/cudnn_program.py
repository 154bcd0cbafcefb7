"""A convolution by cuDNN's graph API, in the order in which cudnn-frontend calls it: cudnn_program.py LIBCUDNN"""
import ctypes
import sys

cudnn, cuda = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcuda.so.1")
POINTER, INT64 = ctypes.c_void_p, ctypes.c_int64
# cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t and cudnnBackendAttributeType_t of CUDA 13's cudnn_graph_v9.h
CONVOLUTION, ENGINE, CONFIG, HEURISTIC, PLAN, OPERATION, GRAPH, PACK, TENSOR = 1, 2, 3, 4, 5, 10, 15, 16, 17
HANDLE, DATA_TYPE, INT, DESCRIPTOR, HEURISTIC_MODE, NOTE, VOID = 0, 1, 3, 15, 8, 11, 6
cudnn.cudnnGetVersion.restype = ctypes.c_size_t
cudnn.cudnnBackendSetAttribute.argtypes = [POINTER, ctypes.c_int, ctypes.c_int, INT64, POINTER]
cudnn.cudnnBackendGetAttribute.argtypes = [POINTER, ctypes.c_int, ctypes.c_int, INT64, ctypes.POINTER(INT64), POINTER]
cudnn.cudnnBackendFinalize.argtypes = cudnn.cudnnBackendDestroyDescriptor.argtypes = [POINTER]
cudnn.cudnnBackendExecute.argtypes = [POINTER] * 3
wrong = 0


def expect(found, wanted, what):
    global wrong
    if found != wanted:
        wrong += 1
        print("%s: %r, wanted %r" % (what, found, wanted))


def make(kind):
    made = POINTER()
    expect(cudnn.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)), 0, "create")
    return made


def put(of, name, kind, values, element=INT64):
    array = (element * len(values))(*values)
    expect(cudnn.cudnnBackendSetAttribute(of, name, kind, len(values), array), 0, "attribute %d" % name)


def get(of, name, kind, room, element=INT64, given=()):
    count, array = INT64(-1), (element * max(room, 1))(*given)
    code = cudnn.cudnnBackendGetAttribute(of, name, kind, room, ctypes.byref(count), array if room else None)
    return code, count.value, list(array)[:count.value]


def whole(of):
    expect(cudnn.cudnnBackendFinalize(of), 0, "finalize")
    return of


print("version", cudnn.cudnnGetVersion())
number, parts = ctypes.c_int(-1), []
for part in range(3):
    expect(cudnn.cudnnGetProperty(part, ctypes.byref(number)), 0, "a part of the version")
    parts.append(number.value)
expect(parts, [9, 10, 2], "the version's parts")
expect(cudnn.cudnnGetProperty(3, ctypes.byref(number)), 2000, "what is no part of it")
handle, stream = POINTER(), POINTER()
expect(cudnn.cudnnCreate(ctypes.byref(handle)), 0, "cudnnCreate")
expect(cudnn.cudnnSetStream(handle, POINTER(0x77)), 0, "cudnnSetStream")
expect((cudnn.cudnnGetStream(handle, ctypes.byref(stream)), stream.value), (0, 0x77), "cudnnGetStream")
tensors = []
for number, shape in enumerate(([32, 64, 56, 56], [64, 64, 3, 3], [32, 64, 56, 56])):
    one = make(TENSOR)
    put(one, 900, INT, [16])  # alignment
    put(one, 901, DATA_TYPE, [9], ctypes.c_int)  # bfloat16
    put(one, 902, INT, shape)
    put(one, 903, INT, [shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1])
    put(one, 906, INT, [number])
    expect(get(one, 902, INT, 4)[0], 2000, "an attribute of a descriptor that is not whole")
    whole(one)
    expect(get(one, 902, INT, 4), (0, 4, shape), "an attribute that was set")
    expect(get(one, 902, INT, 0)[:2], (0, 4), "how many it has")
    expect(get(one, 902, DATA_TYPE, 4)[0], 2000, "another type")
    tensors.append(one)
operation = make(OPERATION)
convolution = whole(make(CONVOLUTION))
put(operation, 702, DESCRIPTOR, [convolution.value], POINTER)
for name, tensor in zip((704, 703, 705), tensors):
    put(operation, name, DESCRIPTOR, [tensor.value], POINTER)
whole(operation)
graph = make(GRAPH)
put(graph, 800, HANDLE, [handle.value], POINTER)
put(graph, 801, DESCRIPTOR, [operation.value], POINTER)
whole(graph)
expect(get(graph, 802, INT, 1), (0, 1, [1]), "engines of the graph")
heuristic = make(HEURISTIC)
put(heuristic, 201, DESCRIPTOR, [graph.value], POINTER)
put(heuristic, 200, HEURISTIC_MODE, [0], ctypes.c_int)
whole(heuristic)
code, engines, _ = get(heuristic, 202, DESCRIPTOR, 0, POINTER)
config, engine = make(CONFIG), make(ENGINE)
expect(get(heuristic, 202, DESCRIPTOR, 1, POINTER, [config.value])[:2], (0, 1), "results")
expect(get(config, 300, DESCRIPTOR, 1, POINTER, [engine.value])[:2], (0, 1), "the engine")
expect(get(engine, 1301, INT, 1), (0, 1, [0]), "its number")
expect(get(engine, 1303, NOTE, 8, ctypes.c_int)[:2], (0, 0), "its notes")
expect(get(config, 302, DESCRIPTOR, 8, POINTER)[:2], (0, 0), "its knobs")
plan = make(PLAN)
put(plan, 400, HANDLE, [handle.value], POINTER)
put(plan, 401, DESCRIPTOR, [config.value], POINTER)
whole(plan)
code, count, size = get(plan, 402, INT, 1)
expect((code, count), (0, 1), "the plan's workspace")
print("workspace %d of %d engine" % (size[0], engines))
context, workspace = POINTER(), ctypes.c_uint64()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
if size[0] and cuda.cuMemAlloc_v2(ctypes.byref(workspace), ctypes.c_size_t(size[0])) != 0:
    sys.exit(1)
pack = make(PACK)
put(pack, 1003, VOID, [workspace.value or None], POINTER)
expect(cudnn.cudnnBackendExecute(handle, plan, pack), 2000, "a pack that is not whole")
expect(cudnn.cudnnBackendExecute(handle, plan, whole(pack)), 0, "execute")
size, tensor = ctypes.c_size_t(7), POINTER()
expect(cudnn.cudnnCreateTensorDescriptor(ctypes.byref(tensor)), 0, "a tensor's descriptor")
expect(cudnn.cudnnSetTensorNdDescriptor(tensor), 0, "what it is")
expect(cudnn.cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(handle, 1, 0, *[tensor] * 5, ctypes.byref(size)), 0, "of a norm")
expect(size.value, 0, "its workspace")
expect(cudnn.cudnnBatchNormalizationForwardTrainingEx(handle), 0, "the norm")
expect(cudnn.cudnnDestroyTensorDescriptor(tensor), 0, "its end")
expect(cudnn.cudnnCreateRNNDescriptor(ctypes.byref(tensor)), 3000, "what is not stood in for")
for one in (pack, plan, engine, config, heuristic, graph, operation, convolution, *tensors):
    expect(cudnn.cudnnBackendDestroyDescriptor(one), 0, "destroy")
expect(cudnn.cudnnDestroy(handle), 0, "cudnnDestroy")
print(wrong, "wrong")
sys.exit(wrong != 0)
