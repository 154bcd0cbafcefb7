#include <sys/socket.h>

#include <cerrno>
#include <map>

#include "driver/driver.hpp"
#include "replay/peer.hpp"
#include "replay/peer_protocol.hpp"

namespace emm::replay {
namespace {

using protocol::Reader;
using protocol::Request;
using protocol::Writer;

constexpr int kProtocolError = 70;  // ExitCode of a bug of ours

/// The handles that this process has opened, by number.
class Openings {
 public:
  explicit Openings(Driver& driver) noexcept : driver_(driver) {}

  Result<std::uint32_t> open(const IpcHandle::Fields& fields) {
    auto handle = IpcHandle::received(fields);
    auto view = handle.open_direct(driver_);
    if (!view) return std::move(view).error();
    openings_.emplace(++last_, Opening{.handle = std::move(handle), .view = *view});
    return last_;
  }
  Status close(std::uint32_t number) {
    const auto found = openings_.find(number);
    if (found == openings_.end()) return Error{.code = Errc::not_found};
    auto closed = found->second.handle.close();
    openings_.erase(found);
    return closed;
  }
  /// `size` bytes from `offset` of the opened memory; an error if they lie outside.
  Result<MemoryView> part(std::uint32_t number, std::uint64_t offset, std::uint64_t size) const {
    const auto found = openings_.find(number);
    if (found == openings_.end()) return Error{.code = Errc::not_found};
    return found->second.view.view(offset, offset + size);
  }
  Result<std::uint64_t> address(std::uint32_t number) const {
    const auto found = openings_.find(number);
    if (found == openings_.end()) return Error{.code = Errc::not_found};
    return found->second.view.device_pointer.value;
  }

 private:
  struct Opening {
    IpcHandle handle;
    MemoryView view;
  };

  Driver& driver_;
  std::map<std::uint32_t, Opening> openings_;
  std::uint32_t last_ = 0;
};

bool receive_all(int socket, void* into, std::size_t size) noexcept {
  for (std::size_t got = 0; got < size;) {
    const auto count = recv(socket, static_cast<std::byte*>(into) + got, size - got, 0);
    if (count > 0) {
      got += static_cast<std::size_t>(count);
    } else if (count == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool send_all(int socket, const std::vector<std::byte>& frame) noexcept {
  for (std::size_t sent = 0; sent < frame.size();) {
    const auto count = send(socket, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

template <class T>
void answer(Writer& writer, const Result<T>& result) {
  if (!result) {
    writer.error(result.error());
    return;
  }
  writer.put(std::uint8_t{0});
  if constexpr (std::is_same_v<T, std::vector<std::byte>>) {
    writer.bytes(result->data(), result->size());
  } else if constexpr (!std::is_void_v<T>) {
    writer.put(*result);
  }
}

Result<std::vector<std::byte>> read(const Openings& openings, Driver& driver, Reader& request) {
  const auto number = request.get<std::uint32_t>();
  const auto offset = request.get<std::uint64_t>();
  const auto size = request.get<std::uint64_t>();
  auto part = openings.part(number, offset, size);
  if (!part) return std::move(part).error();
  if (size >= protocol::kFrameMax) return Error{.code = Errc::invalid_value};
  std::vector<std::byte> bytes(size);
  if (auto copied = driver.memcpy_dtoh(bytes, part->device_pointer); !copied)
    return std::move(copied).error();
  return bytes;
}

Status write(const Openings& openings, Driver& driver, Reader& request) {
  const auto number = request.get<std::uint32_t>();
  const auto offset = request.get<std::uint64_t>();
  const auto bytes = request.rest();
  auto part = openings.part(number, offset, bytes.size());
  if (!part) return std::move(part).error();
  return driver.memcpy_htod(part->device_pointer, bytes);
}

}  // namespace

int serve_peer(int socket, Driver& driver) {
  Openings openings(driver);
  for (;;) {
    std::uint32_t size = 0;
    if (!receive_all(socket, &size, sizeof size)) return 0;
    if (size == 0 || size > protocol::kFrameMax) return kProtocolError;
    std::vector<std::byte> frame(size);
    if (!receive_all(socket, frame.data(), size)) return 0;

    Reader request(std::move(frame));
    Writer writer;
    switch (request.get<Request>()) {
      case Request::open:
        answer(writer, openings.open(request.handle()));
        break;
      case Request::address:
        answer(writer, openings.address(request.get<std::uint32_t>()));
        break;
      case Request::read:
        answer(writer, read(openings, driver, request));
        break;
      case Request::write:
        answer(writer, write(openings, driver, request));
        break;
      case Request::close:
        answer(writer, openings.close(request.get<std::uint32_t>()));
        break;
      default:
        return kProtocolError;
    }
    if (!request.good()) return kProtocolError;
    if (!send_all(socket, writer.take())) return 0;
  }
}

}  // namespace emm::replay
