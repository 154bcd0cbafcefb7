#include "format/pickle.hpp"

#include "format/pickle_store.hpp"

namespace emm::format {

using Type = PickleValue::Type;

Pickle::Pickle() : store_(std::make_unique<PickleStore>()) {}
Pickle::Pickle(Pickle&&) noexcept = default;
Pickle& Pickle::operator=(Pickle&&) noexcept = default;
Pickle::~Pickle() = default;

Type Pickle::type(PickleValue value) const noexcept { return store_->type(value); }
std::optional<std::uint64_t> Pickle::wide_u64(PickleValue value) const noexcept { return store_->u64(value); }
std::optional<std::int64_t> Pickle::i64(PickleValue value) const noexcept { return store_->i64(value); }

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

std::optional<std::string_view> Pickle::string(PickleValue value) const noexcept {
  if (!PickleStore::is_string(value)) return std::nullopt;
  return store_->string(value);
}

std::uint32_t Pickle::size(PickleValue value) const noexcept {
  return store_->is_container(value) ? store_->size_of(store_->container_at(store_->identity(value))) : 0;
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

std::uint32_t Pickle::shape(PickleValue dict) const noexcept {
  return store_->is_container(dict) ? PickleStore::shape_of(store_->container_at(store_->identity(dict))) : kNoShape;
}
std::uint32_t Pickle::shape_count() const noexcept { return store_->shape_count(); }
std::optional<std::uint32_t> Pickle::slot(std::uint32_t shape, std::string_view key) const noexcept {
  return store_->slot(shape, key);
}
Pickle::Fields Pickle::fields(PickleValue dict) const noexcept {
  if (!store_->is_container(dict)) return {};
  const auto& of = store_->container_at(store_->identity(dict));
  if (PickleStore::shape_of(of) == kNoShape) return {};
  return {.shape = PickleStore::shape_of(of), .values = store_->values_from(of.first)};
}
std::uint32_t Pickle::container_count() const noexcept { return store_->container_count(); }
std::uint64_t Pickle::memory_bytes() const noexcept { return store_->bytes(); }

Pickle::Elements Pickle::elements(PickleValue container) const noexcept {
  Elements elements;
  if (!store_->is_container(container)) return elements;
  elements.store_ = store_.get();
  elements.container_ = store_->identity(container);
  const auto& of = store_->container_at(elements.container_);
  elements.shaped_ = PickleStore::shape_of(of) != kNoShape;
  elements.after_ = elements.shaped_ ? 0 : of.first;
  return elements;
}

bool Pickle::Elements::next(PickleValue& value) noexcept {
  if (shaped_) {
    const auto& of = store_->container_at(container_);
    if (slot_ == store_->size_of(of)) return false;
    value = of_value_ ? store_->value_at(of.first + slot_) : store_->key_at(PickleStore::shape_of(of), slot_);
    slot_ += of_value_ ? 1 : 0;
    of_value_ = !of_value_;
    return true;
  }
  if (left_ == 0) {
    if (after_ == 0) return false;
    const auto run = store_->run_at(after_, after_ == store_->container_at(container_).first);
    at_ = run.begin;
    left_ = run.count;
    after_ = run.next;
  }
  constexpr std::uint32_t kFar = 16, kNear = 8;  // rows of a snapshot, which take some 100 ns each
  if (left_ > kFar) {
    store_->prefetch_container(store_->value_at(at_ + kFar));
    store_->prefetch_values(store_->value_at(at_ + kNear));
  }
  --left_;
  value = store_->value_at(at_++);
  return true;
}

}  // namespace emm::format
