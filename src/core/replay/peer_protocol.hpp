#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "emm/ipc_handle.hpp"

/// The protocol of a replay and its peer. A frame is a length (u32) and that many bytes, in this
/// machine's byte order. Each request gets one answer before the next. A request begins with its
/// kind, an answer with 0 and a value, or with 1 and an error.
namespace emm::replay::protocol {

enum class Request : std::uint8_t { open, address, read, write, close };
inline constexpr std::uint32_t kFrameMax = 16u << 20;  // bytes; a longer one is damage

class Writer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> Writer& put(const T& value) {
    return bytes(&value, sizeof value);
  }
  Writer& bytes(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), begin, begin + size);
    return *this;
  }
  Writer& handle(const IpcHandle::Fields& fields) {
    put(fields.handle).put(fields.size).put(fields.offset).put(fields.source_info.has_value());
    return put(fields.source_info.value_or(DeviceIdentity{}));
  }
  Writer& error(const Error& error) {
    const auto words = describe(error);
    put(std::uint8_t{1}).put(error.code).put(error.native);
    return bytes(words.data(), words.size());
  }
  /// Returns the frame: its length, then the bytes that were put.
  std::vector<std::byte> take() {
    const auto size = static_cast<std::uint32_t>(out_.size() - sizeof(std::uint32_t));
    std::memcpy(out_.data(), &size, sizeof size);
    return std::move(out_);
  }

 private:
  std::vector<std::byte> out_{sizeof(std::uint32_t)};
};

/// Reads what a Writer put. Past the end it returns zeros, and good() becomes false.
class Reader {
 public:
  explicit Reader(std::vector<std::byte> frame) : frame_(std::move(frame)) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value{};
    if (left() < sizeof value) {
      good_ = false;
    } else {
      std::memcpy(&value, frame_.data() + at_, sizeof value);
      at_ += sizeof value;
    }
    return value;
  }
  IpcHandle::Fields handle() {
    IpcHandle::Fields fields;
    fields.handle = get<IpcMemHandle>();
    fields.size = get<std::uint64_t>();
    fields.offset = get<std::uint64_t>();
    const bool has_source = get<bool>();
    const auto source = get<DeviceIdentity>();
    if (has_source) fields.source_info = source;
    return fields;
  }
  std::vector<std::byte> rest() {
    return {frame_.begin() + static_cast<std::ptrdiff_t>(std::exchange(at_, frame_.size())),
            frame_.end()};
  }
  Error error() {
    Error error{.code = get<Errc>(), .native = get<std::int32_t>(), .call = nullptr, .message = {}};
    const auto words = rest();
    error.message.assign(reinterpret_cast<const char*>(words.data()), words.size());
    return error;
  }
  std::size_t left() const noexcept { return frame_.size() - at_; }
  bool good() const noexcept { return good_; }

 private:
  std::vector<std::byte> frame_;
  std::size_t at_ = 0;
  bool good_ = true;
};

}  // namespace emm::replay::protocol
