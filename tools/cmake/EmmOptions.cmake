# How every target of the tree is compiled. One place, so that no target differs by accident.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Two words that have just been written and are read as one vector wait for the store buffer to drain. Managers mostly move
# pointers, so they pay for that (memory_pointer.hpp).
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -fno-tree-slp-vectorize")  # EMM_ASSERT is not <cassert>: NDEBUG changes nothing, so it is not set

# g++ collects its garbage whenever its heap has grown by a third, which is a tenth of what a file here takes. With this it
# waits until it holds half a gigabyte, and takes a quarter more memory: 1.1 GB for the largest layer, 1.6 GB for several.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288;--param=ggc-min-expand=100>")

# Under a sanitizer and without optimisation a time means nothing.
set(times_count ON)
if(EMM_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(times_count OFF)
endif()
option(EMM_BENCHMARKS "With EMM_LONG_TESTS: build the benchmarks" ${times_count})

if(EMM_SANITIZE)
  add_compile_options(-fsanitize=${EMM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${EMM_SANITIZE})
  foreach(one IN ITEMS address thread)  # each compiler has its own way to ask which one it is
    if(EMM_SANITIZE MATCHES ${one})
      string(TOUPPER EMM_${one}_SANITIZER name)
      add_compile_definitions(${name})
    endif()
  endforeach()
endif()
if(EMM_SANITIZE MATCHES address AND EMM_SANITIZE MATCHES undefined AND NOT EMM_SANITIZE MATCHES fuzzer)
  # These checks of every access are a sixth of the compiler's time. AddressSanitizer makes the first two itself, and the fuzzers,
  # whose readers lay bytes out, check alignment.
  add_compile_options(-fno-sanitize=null,object-size,alignment)
  # The driver's functions are called as types of our own, with numbers where CUDA has enumerations: clang calls that undefined.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=function>)
endif()
if(EMM_SANITIZE MATCHES fuzzer)
  add_compile_definitions(FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)  # libFuzzer's name for it
endif()

find_program(EMM_CCACHE ccache)
if(EMM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache may take a precompiled header for what it was made from only where it is told so.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${EMM_CCACHE})
endif()

# Some fifty test programs are linked against the same libraries; mold takes a third of ld's time. What is shipped is
# linked by the system's linker.
if(NOT (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.1))  # which cannot call it
  find_program(EMM_MOLD mold)
endif()
set(EMM_QUICK_LINKER $<$<BOOL:${EMM_MOLD}>:-fuse-ld=mold>)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_link_options(${EMM_QUICK_LINKER})
endif()

# Given to the compiler at once, up to forty files of a target take a third to a half of what they take one by one. One
# by one, it says which file leans on what another includes; CI builds both.
# emm_compiled_alone(<target> <files>...): files that name for themselves what another file of the target does too.
set(EMM_UNITY all CACHE STRING
  "Files that are compiled at once: merged (those of several layers), all (of a layer), grouped (all, by what they include), or off (none)")
if(NOT EMM_UNITY STREQUAL "off")
  set(CMAKE_UNITY_BUILD ON)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 40)
if(EMM_UNITY STREQUAL "merged")
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 200)  # all of a target
endif()
function(emm_compiled_alone target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# emm_grouped(<target>): with EMM_UNITY=grouped, as in the developers' tree, the target's files that include
# emm/memory_manager.hpp, themselves or through others of ours, are compiled at once apart from the others, so that a line
# changed there leaves these as they are.
function(emm_grouped target)
  if(EMM_UNITY STREQUAL "grouped")
    set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL emm_group_files ${target})")  # once all its files are known
  endif()
endfunction()
function(emm_group_files target)
  get_target_property(files ${target} SOURCES)
  foreach(file IN LISTS files)
    emm_uses_manager(users ${file})
    set(group others)
    if(users)
      set(group users)
    endif()
    set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()
function(emm_uses_manager answer file)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
  get_property(uses GLOBAL PROPERTY EMM_USES_MANAGER_${file})
  if("${uses}" STREQUAL "" AND EXISTS ${file})
    set(uses OFF)
    set_property(GLOBAL PROPERTY EMM_USES_MANAGER_${file} OFF)  # if it is asked about again before the answer is known
    cmake_path(GET file PARENT_PATH folder)
    file(STRINGS ${file} lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" name "${line}")
      if(name STREQUAL "emm/memory_manager.hpp")
        set(uses ON)
      endif()
      foreach(place IN ITEMS ${EMM_INCLUDED} ${folder})
        if(NOT uses AND EXISTS ${place}/${name})
          emm_uses_manager(uses ${place}/${name})
          break()
        endif()
      endforeach()
    endforeach()
    set_property(GLOBAL PROPERTY EMM_USES_MANAGER_${file} ${uses})
  endif()
  set(${answer} "${uses}" PARENT_SCOPE)
endfunction()

# emm_cold_files(<target> <files>...): those files of a layer that run a few times in a run. emm_compiled_together() compiles them
# as emm_cold() says, which takes the compiler half the time.
function(emm_cold_files target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES EMM_COLD ON)
endfunction()

# emm_compiled_together(<target> <alike> <files> <layers>...): with EMM_UNITY=merged the files of these layers, which
# emm_precompiled() calls <alike>, are those of the target, <files> at once (0: all), and emm_cold_files() those of <target>_cold. What
# they share is then compiled once, which saves a quarter of their time. The layers stay as what others link. Who changes a
# file waits longer.
function(emm_compiled_together target alike files_at_once)
  if(NOT EMM_UNITY STREQUAL "merged")
    return()
  endif()
  add_library(${target} STATIC)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${files_at_once})
  set(made ${target})
  foreach(layer IN LISTS ARGN)
    get_target_property(folder ${layer} SOURCE_DIR)
    get_target_property(files ${layer} SOURCES)
    set_target_properties(${layer} PROPERTIES SOURCES ${PROJECT_SOURCE_DIR}/tools/cmake/layer.cpp)
    if(NOT layer STREQUAL "emm_base")  # it has nothing to include; the headers of emm_base are the others', too
      set_target_properties(${layer} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
    endif()
    list(REMOVE_ITEM files ${PROJECT_SOURCE_DIR}/tools/cmake/layer.cpp)
    foreach(file IN LISTS files)
      cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${folder})
      get_source_file_property(alone ${file} TARGET_DIRECTORY ${layer} SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(cold ${file} TARGET_DIRECTORY ${layer} EMM_COLD)
      set(into ${target})
      if(cold)
        set(into ${target}_cold)
        if(NOT TARGET ${into})
          add_library(${into} STATIC)
          list(APPEND made ${into})
        endif()
      endif()
      if(alone)
        emm_compiled_alone(${into} ${file})
      endif()
      target_sources(${into} PRIVATE ${file})
    endforeach()
    get_target_property(links ${layer} LINK_LIBRARIES)
    get_target_property(folders ${layer} INCLUDE_DIRECTORIES)
    get_target_property(options ${layer} COMPILE_OPTIONS)
    list(APPEND all_links ${links})
    list(APPEND all_folders ${folders})
    target_link_libraries(${layer} INTERFACE ${target})
  endforeach()
  list(FILTER all_links EXCLUDE REGEX "-NOTFOUND$")
  foreach(one IN LISTS made)
    target_link_libraries(${one} PUBLIC ${all_links})
    target_include_directories(${one} PRIVATE ${all_folders})
    target_compile_options(${one} PRIVATE ${options})
  endforeach()
  emm_precompiled(${target} ${alike})
  if(TARGET ${target}_cold)
    target_link_libraries(${target} PUBLIC ${target}_cold)  # they need each other, which the linker is told
    target_link_libraries(${target}_cold PUBLIC ${target})
    emm_cold(${target}_cold)
    emm_precompiled(${target}_cold cold)
  endif()
endfunction()

# A warning stops developers and CI. It does not stop somebody whose compiler warns of what ours does not.
option(EMM_WERROR "Warnings are errors" ${EMM_TESTS})

# The standard library's headers, half of what most files take, are read once for all targets that are compiled alike.
# emm_precompiled(<target> <alike> [headers...]): the targets of one word share; the first says which headers they are.
option(EMM_PRECOMPILED "Read the standard library's headers once" ON)
function(emm_precompiled target alike)
  if(NOT EMM_PRECOMPILED)
    return()
  endif()
  # emm_hardened() is the difference of the two. g++ takes what was read without guarded stacks, and guards them; objects are the same.
  if(alike STREQUAL "library" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(alike warm)
  endif()
  get_property(first GLOBAL PROPERTY EMM_PRECOMPILED_${alike})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
    return()
  endif()
  set_property(GLOBAL PROPERTY EMM_PRECOMPILED_${alike} ${target})
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <bit> <charconv> <chrono> <condition_variable>
    <cstdint> <cstdio> <cstdlib> <cstring> <functional> <limits> <list> <map> <memory> <mutex> <optional> <set> <span> <string>
    <string_view> <thread> <unordered_map> <utility> <variant> <vector> ${ARGN})
endfunction()

# emm_hardened(<target> [WARM]): what is shipped is compiled so that a defect of it is harder to use: calls of libc that
# know the size of what they write check it, stacks are guarded, the tables of addresses are read-only before main(), and no
# path of this machine is inside. tests/cli/hardening_test.py looks. WARM is what each request and free passes: guarded
# stacks cost the pool 2 to 4 % of its instructions there.
function(emm_hardened target)
  if(EMM_SANITIZE)
    return()  # which looks at the same, more closely
  endif()
  set(stack -fstack-protector-strong)
  if(WARM IN_LIST ARGN)
    set(stack -fno-stack-protector)
  endif()
  target_compile_options(${target} PRIVATE ${stack} -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=
    "$<$<CONFIG:Release>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "STATIC_LIBRARY")
    target_link_options(${target} PRIVATE LINKER:-z,relro LINKER:-z,now)
  endif()
endfunction()

# emm_cold(<target>): its code runs a few times in a run. Optimised less, it takes the compiler a quarter less time; and
# at -O1 g++ 12 takes what an empty std::optional holds for read. tools/emmctl and tools/test take -Og, with which the
# compiler is 12 % faster and commands that read traces are 7 % slower.
function(emm_cold target)
  set(level -O1)
  if(EMM_UNITY STREQUAL "merged")
    set(level -Og)
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>
    $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
endfunction()

# An include names the room, not the wing: "trace/event.hpp" is src/core/trace/event.hpp.
set(EMM_INCLUDED ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
foreach(wing IN ITEMS core analysis judge inside)
  list(APPEND EMM_INCLUDED ${PROJECT_SOURCE_DIR}/src/${wing})
endforeach()

# emm_layer(<name> [WARM|COLD] SOURCES ... LINKS ...): a static library emm_<name>. Its headers are seen from the folder of
# its wing, src/<wing>; those of other wings only through what it links.
function(emm_layer name)
  cmake_parse_arguments(arg "WARM;COLD" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(target emm_${name})
  add_library(${target} STATIC ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tools/cmake/layer.cpp)
  add_library(emmctl::${target} ALIAS ${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/${EMM_WING}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/emmctl>)
  target_link_libraries(${target} PUBLIC ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS})
  emm_warnings(${target})
  emm_grouped(${target})
  if(arg_WARM)
    emm_hardened(${target} WARM)
    emm_precompiled(${target} warm)
  elseif(arg_COLD)
    emm_cold(${target})
    emm_hardened(${target})
    emm_precompiled(${target} cold)
  else()
    emm_hardened(${target})
    emm_precompiled(${target} library)
  endif()
  set_property(GLOBAL APPEND PROPERTY EMM_LAYERS ${target})
  emm_part_of_wing(${target})
endfunction()

function(emm_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor
    $<$<BOOL:${EMM_WERROR}>:-Werror>
    $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>  # in g++ it is not part of -Wconversion
    $<$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>:-Wno-shadow>  # of a name of another file
    # g++ 12 sees <string> write beyond strings of files that are compiled at once; one by one it sees that it does not.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-restrict>)
endfunction()
