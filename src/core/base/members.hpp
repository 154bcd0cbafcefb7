#pragma once

#include <string_view>
#include <tuple>

namespace emm {

/// A member of a struct, and its name in JSON.
template <class Of, class T>
struct NamedMember {
  constexpr NamedMember(std::string_view given, T Of::*member) : name(given), at(member) {}
  std::string_view name;
  T Of::*at;
};

/// A struct whose members EMM_MEMBERS_OF lists.
template <class T>
concept Listed = requires(const T* of) {
  members_of(of);
};

}  // namespace emm

/// Lists members of a struct once, for all that is made of them: JSON (format::JsonWriter), in this
/// order and under these names, and bytes for another process (log::to_bytes). Stands in the
/// struct's namespace, before the first use. At most 80 members.
///
///   EMM_MEMBERS_OF(Declined, op, count, why)
#define EMM_MEMBERS_OF(OF, ...)                                        \
  constexpr auto members_of(const OF*) {                               \
    return std::tuple(EMM_SCANNED(EMM_MEMBERS_FROM(OF, __VA_ARGS__))); \
  }
#define EMM_MEMBERS_FROM(OF, MEMBER, ...) \
  ::emm::NamedMember(#MEMBER, &OF::MEMBER) __VA_OPT__(, EMM_MEMBERS_AGAIN EMM_NONE(OF, __VA_ARGS__))
#define EMM_MEMBERS_AGAIN() EMM_MEMBERS_FROM
// A macro is not expanded inside of itself: each further scan, of 85, expands one member more.
#define EMM_NONE ()
#define EMM_SCANNED(...) EMM_SCANNED_16(EMM_SCANNED_16(EMM_SCANNED_16(EMM_SCANNED_16(__VA_ARGS__))))
#define EMM_SCANNED_16(...) EMM_SCANNED_4(EMM_SCANNED_4(EMM_SCANNED_4(EMM_SCANNED_4(__VA_ARGS__))))
#define EMM_SCANNED_4(...) EMM_SCANNED_1(EMM_SCANNED_1(EMM_SCANNED_1(EMM_SCANNED_1(__VA_ARGS__))))
#define EMM_SCANNED_1(...) __VA_ARGS__
