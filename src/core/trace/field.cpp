#include "trace/field.hpp"

#include <array>

#include "trace/operation.hpp"

namespace emm::trace {
namespace {

using Number = std::uint64_t Operation::*;

constexpr Field bytes(Number at) { return {.type = FieldType::bytes, .number = at}; }
constexpr Field count(Number at) { return {.type = FieldType::count, .number = at}; }
constexpr Field nanoseconds(Number at) { return {.type = FieldType::nanoseconds, .number = at}; }
constexpr Field address(Number at) { return {.type = FieldType::address, .number = at}; }
constexpr Field flag(bool Operation::*at) { return {.type = FieldType::flag, .flag = at}; }
constexpr Field words(std::string_view Operation::*at) {
  return {.type = FieldType::text, .text = at};
}
constexpr Field id(Id Operation::*at) { return {.type = FieldType::id, .id = at}; }
/// A member that readers and writers treat by its name.
constexpr Field kSpecial{};

// In the order of Member.
constexpr std::array<Field, kMemberCount> kFields{
    /* op */ kSpecial,
    /* seq */ count(&Operation::seq),
    /* enter */ count(&Operation::enter),
    /* exit */ count(&Operation::exit),
    /* time_ns */ nanoseconds(&Operation::time_ns),
    /* duration_ns */ nanoseconds(&Operation::duration_ns),
    /* process */ id(&Operation::process),
    /* thread */ id(&Operation::thread),
    /* context */ id(&Operation::context),
    /* device */ kSpecial,
    /* layer */ kSpecial,
    /* api */ words(&Operation::api),
    /* kind */ kSpecial,
    /* id */ id(&Operation::id),
    /* size */ bytes(&Operation::size),
    /* align */ bytes(&Operation::align),
    /* granted */ bytes(&Operation::granted),
    /* stream */ id(&Operation::stream),
    /* pool */ id(&Operation::pool),
    /* addr */ address(&Operation::addr),
    /* attach */ kSpecial,
    /* mapped */ flag(&Operation::mapped),
    /* portable */ flag(&Operation::portable),
    /* wc */ flag(&Operation::wc),
    /* read_only */ flag(&Operation::read_only),
    /* io */ flag(&Operation::io),
    /* buffer */ id(&Operation::buffer),
    /* offset */ bytes(&Operation::offset),
    /* page_offset */ kSpecial,
    /* handle */ id(&Operation::handle),
    /* record */ id(&Operation::record),
    /* ids */ kSpecial,
    /* write */ flag(&Operation::write),
    /* scope */ id(&Operation::scope),
    /* cause */ kSpecial,
    /* blocking */ flag(&Operation::blocking),
    /* priority */ kSpecial,
    /* release_threshold */ bytes(&Operation::release_threshold),
    /* max_size */ bytes(&Operation::max_size),
    /* keep */ bytes(&Operation::keep),
    /* graph */ id(&Operation::graph),
    /* range */ id(&Operation::range),
    /* peer */ count(&Operation::peer),
    /* parent */ count(&Operation::parent),
    /* preexisting */ flag(&Operation::preexisting),
    /* name */ words(&Operation::name),
    /* frames */ kSpecial,
    /* phase */ kSpecial,
    /* text */ words(&Operation::text),
    /* lost */ count(&Operation::lost),
    /* reason */ words(&Operation::reason),
    /* events */ count(&Operation::events),
    /* live */ count(&Operation::live),
    /* live_bytes */ bytes(&Operation::live_bytes),
    /* free */ bytes(&Operation::free),
    /* total */ bytes(&Operation::total),
    /* count */ count(&Operation::count),
    /* bytes */ bytes(&Operation::bytes),
    /* site */ id(&Operation::site),
    /* label */ words(&Operation::label),
    /* result */ kSpecial,
    /* expect */ kSpecial,
    /* x-... */ kSpecial,
};

}  // namespace

const Field& field(Member member) noexcept { return kFields[static_cast<std::size_t>(member)]; }

std::span<const Field, kMemberCount> all_fields() noexcept { return kFields; }

}  // namespace emm::trace
