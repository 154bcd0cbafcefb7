#include "emm/ipc_handle.hpp"

#include <charconv>
#include <utility>

#include "base/text_format.hpp"
#include "driver/driver.hpp"
#include "emm/context.hpp"

namespace emm {
namespace {

constexpr std::string_view kLine = "emm-ipc-1";
constexpr std::string_view kDigits = "0123456789abcdef";

// A mapping of another process's memory. Closes it at the end unless it is kept.
class OpenedHandle {
 public:
  OpenedHandle(IpcCalls& driver, DevicePtr base) noexcept : driver_(driver), base_(base) {}
  OpenedHandle(const OpenedHandle&) = delete;
  OpenedHandle& operator=(const OpenedHandle&) = delete;
  ~OpenedHandle() {
    if (base_ && !close()) return;  // a failure is already being reported
  }
  DevicePtr base() const noexcept { return base_; }
  Status close() { return driver_.ipc_close_mem_handle(std::exchange(base_, {})); }

 private:
  IpcCalls& driver_;
  DevicePtr base_;
};

Error no_device_of(const DeviceIdentity& identity) {
  return fail(Errc::not_found,
              "No device of {}:{}:{} is found. Target device may not be visible in this process.",
              identity.pci_domain_id, identity.pci_bus_id, identity.pci_device_id);
}

void append_hex(std::string& out, const IpcMemHandle& handle) {
  for (const auto byte : handle.bytes) {
    out.push_back(kDigits[std::to_integer<unsigned>(byte) >> 4]);
    out.push_back(kDigits[std::to_integer<unsigned>(byte) & 15u]);
  }
}

bool read_hex(std::string_view text, IpcMemHandle& handle) {
  if (text.size() != 2 * handle.bytes.size()) return false;
  for (std::size_t i = 0; i < handle.bytes.size(); ++i) {
    const auto high = kDigits.find(text[2 * i]);
    const auto low = kDigits.find(text[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    handle.bytes[i] = static_cast<std::byte>((high << 4) | low);
  }
  return true;
}

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view next_field(std::string_view& rest) {
  const auto colon = rest.find(':');
  const auto field = rest.substr(0, colon);
  rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  return field;
}

bool read_line(std::string_view rest, IpcHandle::Fields& fields) {
  if (next_field(rest) != kLine || !read_hex(next_field(rest), fields.handle)) return false;
  if (!read_number(next_field(rest), fields.size) || !read_number(next_field(rest), fields.offset))
    return false;
  if (rest == "-") return true;
  auto& source = fields.source_info.emplace();
  return read_number(next_field(rest), source.pci_domain_id) &&
         read_number(next_field(rest), source.pci_bus_id) &&
         read_number(rest, source.pci_device_id);
}

}  // namespace

IpcHandle IpcHandle::exported(const Fields& fields, OwnedPointer base) {
  IpcHandle handle(fields);
  handle.base_ = std::move(base);
  handle.is_original_ = true;
  return handle;
}

IpcHandle IpcHandle::received(const Fields& fields) { return IpcHandle(fields); }

IpcHandle::IpcHandle(IpcHandle&& other) noexcept
    : fields_(other.fields_),
      base_(std::move(other.base_)),
      is_original_(other.is_original_),
      state_(std::exchange(other.state_, State::closed)),
      driver_(other.driver_),
      mapped_(other.mapped_),
      copy_(std::move(other.copy_)) {}

IpcHandle& IpcHandle::operator=(IpcHandle&& other) noexcept {
  if (this == &other) return *this;
  end();
  fields_ = other.fields_;
  base_ = std::move(other.base_);
  is_original_ = other.is_original_;
  state_ = std::exchange(other.state_, State::closed);
  driver_ = other.driver_;
  mapped_ = other.mapped_;
  copy_ = std::move(other.copy_);
  return *this;
}

IpcHandle::~IpcHandle() { end(); }

void IpcHandle::end() noexcept {
  if (is_open() && !close())
    state_ = State::closed;  // a mapping that does not close ends with the process
}

Status IpcHandle::check_can_open() const {
  if (is_open()) return fail(Errc::invalid_value, "IpcHandle is already opened");
  if (is_original_) return fail(Errc::invalid_value, "opening IpcHandle from original process");
  return {};
}

Result<MemoryView> IpcHandle::open(Context& destination) {
  if (auto can = check_can_open(); !can) return std::move(can).error();
  auto& driver = destination.driver();
  if (!fields_.source_info || *fields_.source_info == driver.device_identity())
    return open_direct(driver);
  auto reachable = driver.can_access_peer(*fields_.source_info);
  if (!reachable) return std::move(reachable).error();
  if (*reachable) return open_direct(driver);
  auto* source = Context::find(*fields_.source_info);
  if (source == nullptr) return no_device_of(*fields_.source_info);
  return open_staged(*source, destination);
}

Result<MemoryView> IpcHandle::open_direct(Driver& driver) {
  if (auto can = check_can_open(); !can) return std::move(can).error();
  auto base = driver.ipc_open_mem_handle(fields_.handle);
  if (!base) return std::move(base).error();
  state_ = State::direct;
  driver_ = &driver;
  mapped_ = *base;
  return MemoryView{.device_pointer = mapped_ + fields_.offset, .size = fields_.size};
}

Result<MemoryView> IpcHandle::open_staged(Context& source, Context& destination) {
  if (auto can = check_can_open(); !can) return std::move(can).error();
  if (!fields_.source_info) return fail(Errc::invalid_value, "IPC handle doesn't have source info");
  if (source.driver().device_identity() != *fields_.source_info)
    return no_device_of(*fields_.source_info);
  auto base = source.driver().ipc_open_mem_handle(fields_.handle);
  if (!base) return std::move(base).error();
  OpenedHandle opened(source.driver(), *base);
  auto copy = destination.memalloc(fields_.size);
  if (!copy) return std::move(copy).error();
  const auto from = opened.base() + fields_.offset;
  if (auto copied = destination.driver().memcpy_dtod(copy->device_pointer(), from, fields_.size);
      !copied) {
    return std::move(copied).error();
  }
  if (auto closed = opened.close(); !closed) return std::move(closed).error();
  state_ = State::staged;
  copy_ = *std::move(copy);
  return MemoryView{.device_pointer = copy_.device_pointer(), .size = fields_.size};
}

Status IpcHandle::close() {
  switch (state_) {
    case State::closed:
      return fail(Errc::invalid_value, "IpcHandle not opened");
    case State::direct:
      if (auto closed = driver_->ipc_close_mem_handle(mapped_); !closed) return closed;
      break;
    case State::staged:
      copy_ = {};
      break;
  }
  state_ = State::closed;
  return {};
}

std::string IpcHandle::serialize() const {
  std::string line(kLine);
  line.push_back(':');
  append_hex(line, fields_.handle);
  line += text::format(":{}:{}:", fields_.size, fields_.offset);
  if (!fields_.source_info) return line + "-";
  const auto& source = *fields_.source_info;
  return line +
         text::format("{}:{}:{}", source.pci_domain_id, source.pci_bus_id, source.pci_device_id);
}

Result<IpcHandle> IpcHandle::deserialize(std::string_view line) {
  Fields fields;
  if (!read_line(line, fields)) {
    return fail(
        Errc::parse_error,
        "'{}' is not an IPC handle: expected emm-ipc-1:<128 hex digits>:<size>:<offset>:<device>",
        line);
  }
  return received(fields);
}

Result<IpcHandle> ipc_handle_from_address_range(Driver& driver, MemoryView memory) {
  auto range = driver.mem_get_address_range(memory.device_pointer);
  if (!range) return std::move(range).error();
  auto handle = driver.ipc_get_mem_handle(range->base);
  if (!handle) return std::move(handle).error();
  return IpcHandle::exported({.handle = *handle,
                              .size = memory.size,
                              .offset = memory.device_pointer - range->base,
                              .source_info = driver.device_identity()});
}

}  // namespace emm
