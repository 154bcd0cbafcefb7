#pragma once

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "base/assert.hpp"
#include "base/error.hpp"

namespace emm {

/// A value or an Error, with std::expected's names. Reading the value of a failure is a bug of
/// ours.
///
/// Does not use std::variant, which took a tenth of the compile time for some hundred types.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  template <class U = T>
  requires(std::is_constructible_v<T, U&&> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, Error>) Result(U&& value)
      : value_(std::forward<U>(value)), has_value_(true) {}
  Result(Error error) : error_(std::move(error)), has_value_(false) {}
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : has_value_(other.has_value_) {
    if (has_value_) {
      std::construct_at(std::addressof(value_), std::move(other.value_));
    } else {
      std::construct_at(std::addressof(error_), std::move(other.error_));
    }
  }
  Result(const Result& other) requires std::is_copy_constructible_v<T>
      : has_value_(other.has_value_) {
    if (has_value_) {
      std::construct_at(std::addressof(value_), other.value_);
    } else {
      std::construct_at(std::addressof(error_), other.error_);
    }
  }
  Result& operator=(Result other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~Result() {
    if (has_value_) {
      std::destroy_at(std::addressof(value_));
    } else {
      std::destroy_at(std::addressof(error_));
    }
  }

  bool has_value() const noexcept { return has_value_; }
  explicit operator bool() const noexcept { return has_value_; }

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
    return has_value_ ? value_ : static_cast<T>(std::forward<U>(other));
  }

  Error& error() & noexcept { return *get_error(); }
  const Error& error() const& noexcept { return *get_error(); }
  Error&& error() && noexcept { return std::move(*get_error()); }

 private:
  T* get() noexcept {
    EMM_ASSERT(has_value_);
    return std::addressof(value_);
  }
  const T* get() const noexcept { return const_cast<Result*>(this)->get(); }
  Error* get_error() noexcept {
    EMM_ASSERT(!has_value_);
    return std::addressof(error_);
  }
  const Error* get_error() const noexcept { return const_cast<Result*>(this)->get_error(); }

  union {
    T value_;
    Error error_;
  };
  bool has_value_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() noexcept : none_{}, has_value_(true) {}
  Result(Error error) : error_(std::move(error)), has_value_(false) {}
  Result(Result&& other) noexcept : none_{}, has_value_(other.has_value_) {
    if (!has_value_) std::construct_at(&error_, std::move(other.error_));
  }
  Result(const Result& other) : none_{}, has_value_(other.has_value_) {
    if (!has_value_) std::construct_at(&error_, other.error_);
  }
  Result& operator=(Result other) noexcept {
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~Result() {
    if (!has_value_) std::destroy_at(&error_);
  }

  bool has_value() const noexcept { return has_value_; }
  explicit operator bool() const noexcept { return has_value_; }
  const Error& error() const& noexcept {
    EMM_ASSERT(!has_value_);
    return error_;
  }
  Error&& error() && noexcept {
    EMM_ASSERT(!has_value_);
    return std::move(error_);
  }

 private:
  union {
    char none_;
    Error error_;
  };
  bool has_value_;
};

using Status = Result<void>;

}  // namespace emm
