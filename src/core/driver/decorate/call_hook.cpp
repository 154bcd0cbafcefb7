#include "driver/decorate/call_hook.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "driver/call.hpp"

namespace emm {

std::string to_text(const CallEvent& event) {
  const auto shape = call_info(event.call).shape;
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
