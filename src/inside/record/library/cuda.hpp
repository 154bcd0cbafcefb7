#pragma once

#include <cstdint>
#include <cstring>

#include "record/library/recorder.hpp"

namespace emm::record {

/// These structures declare the first members of CUDA's, as far as the recorder reads them.
struct Location {
  int type, id;
};
struct PoolProperties {
  int type, handle_types;
  Location location;
  void* security;
  Size max_size;
};
struct AllocationProperties {
  int type, handle_types;
  Location location;
};
struct AccessDescriptor {
  Location location;
  int flags;
};
struct IpcHandle {
  unsigned char bytes[64];
};
struct ArrayDescriptor {
  Size width, height;
  int format;
  unsigned channels;
};
struct Array3dDescriptor {
  Size width, height, depth;
  int format;
  unsigned channels, flags;
};
struct MemAllocNode {  // CUDA_MEM_ALLOC_NODE_PARAMS
  PoolProperties pool;
  unsigned char reserved[56];
  const AccessDescriptor* access;
  Size count, size;
  Address address;
};
struct GraphNode {  // CUgraphNodeParams
  int type, reserved[3];
  union {
    MemAllocNode alloc;
    Address free;
  };
};
inline constexpr int kAllocNode = 10, kFreeNode = 11;  // CU_GRAPH_NODE_TYPE_MEM_ALLOC, _MEM_FREE
struct ArrayMapInfo {
  int resource;
  Handle array;
  int part;
  alignas(8) unsigned char where[32];
  int operation, handle_kind;
  Handle memory;
};
struct MulticastProperties {
  unsigned devices;
  Size size;
};
struct ExternalMemory {  // CUDA_EXTERNAL_MEMORY_HANDLE_DESC
  int type;
  Handle handle[2];
  unsigned long long size;
};
struct ExternalBuffer {
  unsigned long long offset, size;
};
struct ExternalArray {
  unsigned long long offset;
  Array3dDescriptor array;
  unsigned levels;
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Handle stream;
};

constexpr Size channel_bytes(int format) noexcept {
  switch (format) {  // CUarray_format
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4;
    default:
      return 1;
  }
}
inline Size at_least_1(Size value) noexcept { return value != 0 ? value : 1; }
inline Size array_bytes(const ArrayDescriptor& about) noexcept {
  return about.width * at_least_1(about.height) * about.channels * channel_bytes(about.format);
}
inline Size array_bytes(const Array3dDescriptor& about) noexcept {
  return about.width * at_least_1(about.height) * at_least_1(about.depth) * about.channels *
         channel_bytes(about.format);
}

/// A program may pass null, which the driver refuses.
template <class Descriptor>
Size array_bytes(const Descriptor* about) noexcept {
  return about != nullptr ? array_bytes(*about) : 0;
}

/// Returns FNV-1a of the handle's bytes, which tells it from other handles.
inline std::uint64_t fingerprint(const IpcHandle& handle) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto byte : handle.bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}
inline std::uint64_t attribute_value(int attribute, const void* value) noexcept {
  std::uint64_t found = 0;  // access policies are an int, the other attributes 64 bits
  if (value != nullptr) std::memcpy(&found, value, attribute < 4 ? sizeof(int) : sizeof found);
  return found;
}

inline bool is_device(const Location* location) noexcept {
  return location != nullptr && location->type == 1;
}
inline std::uint64_t device_of_pool(const PoolProperties* about) noexcept {
  constexpr int kManaged = 2;  // CUmemAllocationType
  if (about == nullptr) return kAnyDevice;
  if (is_device(&about->location)) return static_cast<unsigned>(about->location.id);
  return about->type == kManaged ? kAnyDevice : kHost;
}
inline std::uint64_t location_id(const Location* location) noexcept {
  return location != nullptr ? static_cast<unsigned>(location->id) : 0;
}
constexpr Handle on_stream(Handle stream, bool own) noexcept {
  return own && stream == 0 ? 2 : stream;
}
/// Returns the device of a context, or 255 when the driver does not say.
std::uint64_t context_device(Handle context) noexcept;
inline std::uint64_t context_number(Handle context) noexcept { return number_of_context(context); }
/// Records the device and the number of `context`, which need not be the thread's current one.
inline void put_context(CallRecord& record, Handle context) noexcept {
  if (const auto number = context_number(context); number != 0)
    record.context = static_cast<std::uint8_t>(number);
}
/// Records the bytes that a node allocates and the address that it allocates or frees.
inline void put_node(CallRecord& record, const GraphNode* node, bool ok) noexcept {
  record.stream = node != nullptr ? static_cast<unsigned>(node->type) : 0;
  if (record.stream == kAllocNode) {
    record.size = node->alloc.size;
    record.address = ok ? node->alloc.address : 0;
  } else if (record.stream == kFreeNode) {
    record.address = node->free;
  }
}
inline void put_arrays(CallRecord& record, const ArrayMapInfo* list, unsigned count) noexcept {
  record.size = count;
  if (list == nullptr || count == 0) return;
  record.address = list->array;
  record.extra = list->memory;
}

// wrapped.def uses these macros in its last column.
#define GIVEN(out) (ok && (out) != nullptr ? *(out) : 0)
#define ON(stream) on_stream(stream, kOwn)

}  // namespace emm::record
