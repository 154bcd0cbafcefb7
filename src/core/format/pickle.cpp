#include "format/pickle.hpp"

namespace emm::format {

using Type = PickleValue::Type;

Pickle::Pickle() : store_(std::make_unique<PickleStore>()) {}
Pickle::Pickle(Pickle&&) noexcept = default;
Pickle& Pickle::operator=(Pickle&&) noexcept = default;
Pickle::~Pickle() = default;

std::optional<double> Pickle::real(PickleValue value) const noexcept {
  if (type(value) == Type::real) return store_->real(value);
  if (const auto integer = i64(value)) return static_cast<double>(*integer);
  if (const auto integer = u64(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<bool> Pickle::boolean(PickleValue value) const noexcept {
  if (type(value) != Type::boolean) return std::nullopt;
  return store_->is_true(value);
}

PickleValue Pickle::find(PickleValue dict, std::string_view key) const noexcept {
  if (type(dict) != Type::dict) return {};
  if (const auto form = shape(dict); form != kNoShape) {
    const auto place = slot(form, key);
    return place ? at(dict, *place) : PickleValue();
  }
  PickleValue found, name, value;
  for (auto each = elements(dict); each.next(name) && each.next(value);) {
    if (string(name) == key) found = value;
  }
  return found;
}

std::uint32_t Pickle::shape_count() const noexcept { return store_->shape_count(); }
std::optional<std::uint32_t> Pickle::slot(std::uint32_t shape,
                                          std::string_view key) const noexcept {
  return store_->slot(shape, key);
}
std::uint32_t Pickle::container_count() const noexcept { return store_->container_count(); }
std::uint64_t Pickle::memory_bytes() const noexcept { return store_->bytes(); }

}  // namespace emm::format
