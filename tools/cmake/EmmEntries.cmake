# emm_entries(<target> <family> <header> <Entry> <accessor> names...)
#
# Adds <name>.cpp of each name to the target and generates the family's table, in the order written.
# Each file defines `constinit const <Entry> emm::<name>_<family>`; one that does not is a link error
# that names the symbol. A folder in a name becomes an underscore in the symbol. Entry and accessor may be in a
# namespace of emm's: log::LogEntry log::bundled_logs.
#
#   emm_entries(emm_managers manager emm/manager_entry.hpp ManagerEntry bundled_managers default pool)
#
# gives `std::span<const ManagerEntry* const> emm::bundled_managers()`, declared in <header>; the global property
# of that name holds the names.
function(emm_entries target family header entry accessor)
  set(declarations "")
  set(rows "")
  foreach(name IN LISTS ARGN)
    string(REPLACE "/" "_" symbol ${name})
    string(REPLACE "-" "_" symbol ${symbol})
    string(REPLACE "-" "_" file ${name})
    string(APPEND declarations "extern const ${entry} ${symbol}_${family};\n")
    string(APPEND rows "    &${symbol}_${family},\n")
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${file}.cpp)
  endforeach()
  set_property(GLOBAL PROPERTY ${accessor} ${ARGN})
  string(REPLACE "::" "_" table ${accessor})
  set(table ${CMAKE_CURRENT_BINARY_DIR}/${table}.cpp)
  file(CONFIGURE OUTPUT ${table} @ONLY CONTENT "#include \"@header@\"

namespace emm {
@declarations@
std::span<const @entry@* const> @accessor@() {
  static constexpr const @entry@* kTable[] = {
@rows@  };
  return kTable;
}
}  // namespace emm
")
  target_sources(${target} PRIVATE ${table})
endfunction()
