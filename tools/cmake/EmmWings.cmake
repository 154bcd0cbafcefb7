# A wing is a folder of src: rooms, each a library, with the commands that they answer. EMM_WINGS says which are built.
# src/README.md has what each is.
set(EMM_ALL_WINGS judge analysis inside core)  # in this order their commands stand in --help
set(EMM_WINGS "${EMM_ALL_WINGS}" CACHE STRING "Wings of the program, of judge, analysis, inside and core; core is always built")
list(REMOVE_ITEM EMM_WINGS "")
if(NOT core IN_LIST EMM_WINGS)
  list(APPEND EMM_WINGS core)
endif()
foreach(wing IN LISTS EMM_WINGS)
  if(NOT wing IN_LIST EMM_ALL_WINGS)
    message(FATAL_ERROR "EMM_WINGS: ${wing} is no wing: expected some of ${EMM_ALL_WINGS}")
  endif()
endforeach()

# emm_wing(<name>): what follows in this folder and below belongs to the wing. The target emm_wing_<name> has its rooms; its commands
# are part of emm_cli (those of the core) and of emm_commands.
# The folder is left unread where EMM_WINGS does not name the wing, but for its commands, which say so when they are called.
macro(emm_wing name)
  set(EMM_WING src/${name})
  set(EMM_WING_NAME ${name})
  add_library(emm_wing_${name} INTERFACE)
  target_include_directories(emm_wing_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src/${name})
  if(NOT ${name} IN_LIST EMM_WINGS)
    add_subdirectory(commands)
    return()
  endif()
endmacro()
function(emm_part_of_wing target)
  if(EMM_WING_NAME)
    target_link_libraries(emm_wing_${EMM_WING_NAME} INTERFACE ${target})
  endif()
endfunction()

# emm_commands(<names...> [PARTS files...]): <name>.cpp of each command of this wing, in the order of --help, ending in
# `constinit const Command emm::<name>_command`; PARTS are files that several of them share.
function(emm_commands)
  cmake_parse_arguments(arg "" "" "PARTS" ${ARGN})
  set_property(GLOBAL PROPERTY EMM_COMMANDS_${EMM_WING_NAME} ${arg_UNPARSED_ARGUMENTS})
  if(NOT EMM_WING_NAME IN_LIST EMM_WINGS AND NOT EMM_WING_NAME STREQUAL cli)
    return()
  endif()
  foreach(name IN LISTS arg_UNPARSED_ARGUMENTS)
    string(REPLACE "-" "_" file ${name})
    list(APPEND arg_PARTS ${file}.cpp)
  endforeach()
  list(TRANSFORM arg_PARTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(target emm_commands)
  if(EMM_WING_NAME STREQUAL "core")
    set(target emm_cli)
  endif()
  target_sources(${target} PRIVATE ${arg_PARTS})
endfunction()

# emm_listings(<names...>): what `emmctl list` lists of this wing; cli/listing.hpp says how.
function(emm_listings)
  set_property(GLOBAL PROPERTY EMM_LISTINGS_${EMM_WING_NAME} ${ARGN})
endfunction()

# emm_command_table(<target> <wings...>): bundled_commands(), the commands of these wings, and absent_commands(), those of the
# others. The commands that tell of all wings are those of cli.
function(emm_command_table target)
  set(declarations "")
  set(rows "")
  set(absent "")
  foreach(wing IN LISTS EMM_ALL_WINGS ITEMS cli)
    get_property(names GLOBAL PROPERTY EMM_COMMANDS_${wing})
    foreach(name IN LISTS names)
      string(REPLACE "-" "_" symbol ${name})
      if(wing IN_LIST ARGN)
        string(APPEND declarations "extern const Command ${symbol}_command;\n")
        string(APPEND rows "    &${symbol}_command,\n")
      else()
        string(APPEND absent "    {\"${name}\", \"${wing}\"},\n")
      endif()
    endforeach()
  endforeach()
  set(listings "")
  foreach(wing IN LISTS ARGN)
    get_property(names GLOBAL PROPERTY EMM_LISTINGS_${wing})
    foreach(name IN LISTS names)
      string(APPEND declarations "extern const cli::Listing ${name}_listing;\n")
      string(APPEND listings "&${name}_listing, ")
    endforeach()
  endforeach()
  set(what_is nullptr)
  if(analysis IN_LIST ARGN)
    set(what_is what_is)
  endif()
  set(table ${CMAKE_CURRENT_BINARY_DIR}/table_of_${target}.cpp)
  file(CONFIGURE OUTPUT ${table} @ONLY CONTENT "#include \"cli/command.hpp\"
#include \"cli/listing.hpp\"
#include \"cli/what_is.hpp\"

namespace emm {
@declarations@
std::span<const Command* const> bundled_commands() {
  static constexpr const Command* kTable[] = {
@rows@  };
  return kTable;
}

std::span<const cli::AbsentCommand> absent_commands() {
  static constexpr cli::AbsentCommand kTable[] = {
@absent@    {\"\", \"\"},
  };
  return std::span(kTable).first(std::size(kTable) - 1);
}

std::span<const cli::Listing* const> listings_of_wings() {
  static constexpr const cli::Listing* kTable[] = {@listings@nullptr};
  return std::span(kTable).first(std::size(kTable) - 1);
}

cli::WhatIs cli::what_is_or_null() noexcept { return @what_is@; }
}  // namespace emm
")
  target_sources(${target} PRIVATE ${table})
endfunction()
