#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>

#include "driver/types.hpp"
#include "plugin/abi.hpp"

/// How the parameters of a Driver's calls cross the C table emm_driver_v1. Both sides of the table
/// are built from these rules and from the rows of calls.def: DriverTable puts a Driver behind the
/// slots, and libemm's TableDriver is a Driver that calls the slots.
namespace emm::plugin {

/// The rule of one type: to() makes the C arguments for a value, from() makes the value from them.
/// Numbers cross unchanged, and so do pointers that are only passed through.
template <class T>
struct Crossing {
  static std::tuple<T> to(T value) noexcept { return {value}; }
  static T from(T value) noexcept { return value; }
};

/// DevicePtr and all handles cross as their number.
template <class T>
requires std::same_as<decltype(T::value), std::uint64_t>
struct Crossing<T> {
  static std::tuple<std::uint64_t> to(T handle) noexcept { return {handle.value}; }
  static T from(std::uint64_t value) noexcept { return {value}; }
};

template <class T>
requires std::is_enum_v<T>
struct Crossing<T> {
  static std::tuple<std::uint32_t> to(T value) noexcept {
    return {static_cast<std::uint32_t>(value)};
  }
  static T from(std::uint32_t value) noexcept { return static_cast<T>(value); }
};

template <>
struct Crossing<HostAllocFlags> {
  static std::tuple<std::uint32_t> to(HostAllocFlags flags) noexcept { return {flags.bits()}; }
  static HostAllocFlags from(std::uint32_t bits) noexcept { return host_alloc_flags(bits); }
};
template <>
struct Crossing<HostRegisterFlags> {
  static std::tuple<std::uint32_t> to(HostRegisterFlags flags) noexcept { return {flags.bits()}; }
  static HostRegisterFlags from(std::uint32_t bits) noexcept { return host_register_flags(bits); }
};

template <>
struct Crossing<HostPtr> {
  static std::tuple<void*> to(HostPtr ptr) noexcept { return {ptr}; }
  static HostPtr from(void* ptr) noexcept { return static_cast<HostPtr>(ptr); }
};
template <>
struct Crossing<HostRange> {
  static std::tuple<void*, std::uint64_t> to(HostRange range) noexcept {
    return {range.pointer, range.size};
  }
  static HostRange from(void* ptr, std::uint64_t size) noexcept {
    return {.pointer = static_cast<HostPtr>(ptr), .size = size};
  }
};
template <>
struct Crossing<std::span<const std::byte>> {
  static std::tuple<const void*, std::uint64_t> to(std::span<const std::byte> bytes) noexcept {
    return {bytes.data(), bytes.size()};
  }
  static std::span<const std::byte> from(const void* data, std::uint64_t size) noexcept {
    return {static_cast<const std::byte*>(data), size};
  }
};

/// domain, bus, device, as an argument `const int32_t pci[3]`.
struct PciNumbers {
  std::array<std::int32_t, 3> numbers;
  operator const std::int32_t*() const noexcept { return numbers.data(); }
};
template <>
struct Crossing<DeviceIdentity> {
  static std::tuple<PciNumbers> to(const DeviceIdentity& device) noexcept {
    return {PciNumbers{{device.pci_domain_id, device.pci_bus_id, device.pci_device_id}}};
  }
  static DeviceIdentity from(const std::int32_t* pci) noexcept {
    return {.pci_domain_id = pci[0], .pci_bus_id = pci[1], .pci_device_id = pci[2]};
  }
};
template <>
struct Crossing<IpcMemHandle> {
  /// The argument points into `handle`.
  static std::tuple<const unsigned char*> to(const IpcMemHandle& handle) noexcept {
    return {reinterpret_cast<const unsigned char*>(handle.bytes.data())};
  }
  static IpcMemHandle from(const unsigned char* bytes) noexcept {
    IpcMemHandle handle;
    std::memcpy(handle.bytes.data(), bytes, handle.bytes.size());
    return handle;
  }
};

/// How many C arguments stand for a parameter.
template <class Parameter>
inline constexpr std::size_t kArguments =
    std::tuple_size_v<decltype(Crossing<std::remove_cvref_t<Parameter>>::to(
        std::declval<std::remove_cvref_t<Parameter>>()))>;

/// How many C arguments a slot has after `user`.
template <class Slot>
inline constexpr std::size_t kSlotArguments = 0;
template <class... Args>
inline constexpr std::size_t kSlotArguments<emm_status (*)(void*, Args...)> = sizeof...(Args);

}  // namespace emm::plugin
