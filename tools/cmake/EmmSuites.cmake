# ctest includes this. emm_suites(<name> <program> <labels> <cost> [slow suites...]): a test <name>.<suite> for each suite
# of a GoogleTest program.
#
# A process for each suite, not for each test: two thousand processes take longer than what they test.
function(emm_suites name program labels cost)
  if(NOT EXISTS ${program})
    add_test(${name} ${program})  # ctest says that it is not built, unless its labels are left out
    set_tests_properties(${name} PROPERTIES LABELS "${labels}")
    return()
  endif()
  execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\." suites "${listed}")  # the lines of tests begin with spaces
  foreach(suite IN LISTS suites)
    string(REGEX REPLACE "[\n.]" "" suite ${suite})
    add_test(${name}.${suite} ${program} --gtest_filter=${suite}.*)
    # Where some tests skipped and none failed, the list of them is the last that GoogleTest says.
    set(own_labels ${labels})
    list(FIND ARGN ${suite} found)  # ctest has no policies set, and so no IN_LIST
    if(NOT found EQUAL -1)
      list(APPEND own_labels slow)
    endif()
    set_tests_properties(${name}.${suite} PROPERTIES LABELS "${own_labels}" TIMEOUT 1200 COST ${cost}
      SKIP_REGULAR_EXPRESSION "listed below:\n(\\[  SKIPPED \\] [^\n]*\n)+$")
  endforeach()
endfunction()
