#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "base/assert.hpp"
#include "base/error.hpp"

namespace emm {

/// A value or an Error, with std::expected's names. Reading the value of a failed one is a bug of
/// ours.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  template <class U = T>
  requires(std::is_constructible_v<T, U&&> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, Error>) Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & noexcept { return *get(); }
  const T& value() const& noexcept { return *get(); }
  T&& value() && noexcept { return std::move(*get()); }
  T& operator*() & noexcept { return *get(); }
  const T& operator*() const& noexcept { return *get(); }
  T&& operator*() && noexcept { return std::move(*get()); }
  T* operator->() noexcept { return get(); }
  const T* operator->() const noexcept { return get(); }
  template <class U>
  T value_or(U&& other) const& {
    return has_value() ? **this : static_cast<T>(std::forward<U>(other));
  }

  Error& error() & noexcept { return *get_error(); }
  const Error& error() const& noexcept { return *get_error(); }
  Error&& error() && noexcept { return std::move(*get_error()); }

 private:
  T* get() noexcept {
    auto* value = std::get_if<0>(&state_);
    EMM_ASSERT(value != nullptr);
    return value;
  }
  const T* get() const noexcept { return const_cast<Result*>(this)->get(); }
  Error* get_error() noexcept {
    auto* error = std::get_if<1>(&state_);
    EMM_ASSERT(error != nullptr);
    return error;
  }
  const Error* get_error() const noexcept { return const_cast<Result*>(this)->get_error(); }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : state_(std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  const Error& error() const& noexcept {
    const auto* error = std::get_if<1>(&state_);
    EMM_ASSERT(error != nullptr);
    return *error;
  }
  Error&& error() && noexcept {
    return std::move(const_cast<Error&>(std::as_const(*this).error()));
  }

 private:
  std::variant<std::monostate, Error> state_;
};

using Status = Result<void>;

}  // namespace emm
