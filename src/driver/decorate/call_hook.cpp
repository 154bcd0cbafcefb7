#include "driver/decorate/call_hook.hpp"

#include "base/error.hpp"
#include "base/text.hpp"

namespace emm {
namespace {

/// How a call is written: p is the pointer and o the other value as addresses, h the pointer and v
/// the other value as numbers, s the size, t the stream; then, after a bar, its result likewise: p
/// or n, or nothing.
constexpr std::string_view shape_of(Call call) noexcept {
  switch (call) {
    case Call::mem_alloc:
    case Call::runtime_malloc:
      return "s|p";
    case Call::mem_alloc_managed:
    case Call::mem_host_alloc:
      return "sv|p";
    case Call::mem_free:
    case Call::mem_free_host:
    case Call::mem_host_unregister:
    case Call::ipc_get_mem_handle:
    case Call::ipc_close_mem_handle:
    case Call::runtime_free:
      return "p|";
    case Call::mem_host_register:
      return "psv|";
    case Call::mem_host_get_device_pointer:
    case Call::mem_get_address_range:
      return "p|p";
    case Call::mem_get_info:
    case Call::runtime_get_info:
    case Call::event_create:
    case Call::stream_create:
    case Call::ctx_pop_current:
      return "|n";
    case Call::library_load:
      return "s|n";
    case Call::ipc_open_mem_handle:
      return "|p";
    case Call::memset_d8:
    case Call::memset_d32:
      return "pvs|";
    case Call::memcpy_htod:
    case Call::memcpy_dtoh:
      return "ps|";
    case Call::memcpy_dtod:
      return "pos|";
    case Call::event_destroy:
    case Call::stream_destroy:
    case Call::stream_synchronize:
    case Call::library_unload:
      return "h|";
    case Call::ctx_synchronize:
    case Call::ctx_push_current:
    case Call::primary_ctx_reset:
      return "|";
    case Call::can_access_peer:
      return "h|n";
    case Call::stream_query:
    case Call::event_query:
      return "h|n";
    case Call::stream_wait_event:
      return "hv|";
    case Call::event_record:
      return "ht|";
    case Call::event_synchronize:
    case Call::mem_release:
    case Call::mem_pool_destroy:
    case Call::ctx_enable_peer_access:
    case Call::ctx_disable_peer_access:
      return "h|";
    case Call::memset_d8_async:
      return "pvst|";
    case Call::memcpy_dtod_async:
      return "post|";
    case Call::launch_host_func:
      return "t|";
    case Call::mem_get_allocation_granularity:
    case Call::device_get_default_mem_pool:
      return "|n";
    case Call::mem_address_reserve:
      return "s|p";
    case Call::mem_address_free:
    case Call::mem_unmap:
      return "ps|";
    case Call::mem_create:
    case Call::mem_pool_create:
      return "s|n";
    case Call::mem_map:
    case Call::mem_set_access:
      return "psv|";
    case Call::mem_pool_trim_to:
      return "hs|";
    case Call::mem_pool_set_attribute:
      return "hvs|";
    case Call::mem_pool_get_attribute:
      return "hv|n";
    case Call::mem_alloc_async:
      return "st|p";
    case Call::mem_alloc_from_pool_async:
      return "svt|p";
    case Call::mem_free_async:
      return "pt|";
    case Call::memcpy_peer:
      return "pos|";
  }
  return "|";
}

}  // namespace

std::string to_text(const CallEvent& event) {
  const auto shape = shape_of(event.call);
  const auto bar = shape.find('|');
  std::string out(call_info(event.call).name);
  out += '(';
  for (const char what : shape.substr(0, bar)) {
    if (out.back() != '(') out += ", ";
    switch (what) {
      case 'p':
        out += text::hex(event.pointer);
        break;
      case 'o':
        out += text::hex(event.other);
        break;
      case 'h':
        text::append(out, event.pointer);
        break;
      case 'v':
        text::append(out, event.other);
        break;
      case 't':
        text::append(out, event.stream.value);
        break;
      default:
        text::append(out, event.size);
        break;
    }
  }
  out += ')';
  if (event.native != 0) {
    out += " -> ";
    out += native_name(event.native);
  } else if (const auto result = shape.substr(bar + 1); !result.empty()) {
    out += " -> ";
    result == "p" ? out += text::hex(event.result) : (text::append(out, event.result), out);
  }
  return out;
}

}  // namespace emm
