# `cmake --install` lays out what is public, and nothing else:
#   bin/emmctl, lib/libemm.so, and what emmctl itself finds in lib/emmctl;
#   lib/libemmctl.a with the headers of EMM_PUBLIC_HEADERS, for
#     find_package(emmctl REQUIRED)
#     target_link_libraries(mine PRIVATE emmctl::emm)
#   and for a manager in a shared object, which needs one C header and no library,
#     find_package(emmctl REQUIRED COMPONENTS plugin)
#     target_link_libraries(mine PRIVATE emmctl::plugin)
#   the Python package, the manual pages and the shells' completions.
# `cpack` in the build folder makes a .deb and a relocatable .tar.gz of it; tools/package also makes a wheel.
include(CMakePackageConfigHelpers)

# The manager interface, the driver seam and trace reading, with all that these headers include. Each compiles by itself
# from the installed folder (tests/consumer/packages_test.py).
set(EMM_PUBLIC_HEADERS
  base/assert.hpp
  base/clock.hpp
  base/error.hpp
  base/ids.hpp
  base/options.hpp
  base/result.hpp
  base/text.hpp
  base/text_format.hpp
  driver/call.hpp
  driver/calls.def
  driver/device_entry.hpp
  driver/driver.hpp
  driver/types.hpp
  emm/context.hpp
  emm/defer_cleanup.hpp
  emm/epoch.hpp
  emm/ipc_handle.hpp
  emm/manager_entry.hpp
  emm/manager_observer.hpp
  emm/manager_pointer.hpp
  emm/memory_manager.hpp
  emm/memory_pointer.hpp
  emm/pending_deallocs.hpp
  emm/selection.hpp
  format/byte_source.hpp
  trace/expect.hpp
  trace/header.hpp
  trace/id.hpp
  trace/op.hpp
  trace/operation.hpp
  trace/operation_sink.hpp
  trace/reader.hpp
)

# The layers behind these headers as one archive, without the information for debuggers.
set(public_layers emm_managers emm_allocators emm_trace emm_plugin emm_emm emm_driver emm_format emm_base)
if(TARGET emm_library)  # EMM_UNITY=merged: has the code of some of them
  list(APPEND public_layers emm_library emm_library_cold)
endif()
set(archive ${PROJECT_BINARY_DIR}/lib/libemmctl.a)
set(script "create ${archive}\n")
foreach(layer IN LISTS public_layers)
  string(APPEND script "addlib $<TARGET_FILE:${layer}>\n")
endforeach()
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/libemmctl.mri CONTENT "${script}save\nend\n")
add_custom_command(OUTPUT ${archive}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
  COMMAND ${CMAKE_AR} -M < ${PROJECT_BINARY_DIR}/libemmctl.mri
  COMMAND ${CMAKE_STRIP} --strip-debug ${archive}
  DEPENDS ${public_layers} ${PROJECT_BINARY_DIR}/libemmctl.mri VERBATIM)
if(EMM_SANITIZE)
  add_custom_target(emmctl_archive DEPENDS ${archive})
else()
  add_custom_target(emmctl_archive ALL DEPENDS ${archive})
endif()
add_custom_target(installed DEPENDS emmctl emmctl_archive)
if(TARGET libemm)
  add_dependencies(installed libemm libemm_python libemm_python_class emm_recorder)
endif()
if(TARGET standin)
  add_dependencies(installed standin standin_cudart)
endif()

# The manual pages and the completions are what the program says of itself.
set(pages ${PROJECT_BINARY_DIR}/pages)
add_custom_command(OUTPUT ${pages}/done
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/man
  COMMAND emmctl manual ${pages}/man ${PROJECT_VERSION}
  COMMAND emmctl completion bash > ${pages}/emmctl
  COMMAND emmctl completion zsh > ${pages}/_emmctl
  COMMAND emmctl completion fish > ${pages}/emmctl.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/done
  DEPENDS emmctl VERBATIM)
if(NOT EMM_SANITIZE)
  add_custom_target(emmctl_pages ALL DEPENDS ${pages}/done)
  add_dependencies(installed emmctl_pages)
  install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${pages}/emmctl DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${pages}/_emmctl DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${pages}/emmctl.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

set(EMM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/emmctl)
set(EMM_PYTHON_DIR lib/python3/dist-packages CACHE STRING "Where the Python package is installed, below the prefix")
install(TARGETS emmctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET libemm)  # EMM_WINGS may leave it out
  install(TARGETS libemm libemm_python libemm_python_class LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # What `emmctl record` puts into a program.
  install(TARGETS emm_recorder LIBRARY DESTINATION lib/emmctl/record)
endif()
# The stand-ins for libcuda and libcudart, which managers of others are judged on without a GPU. Programs ask for them also by the
# names without a version, which are links.
if(TARGET standin)
  install(TARGETS standin standin_cudart LIBRARY DESTINATION lib/emmctl/standin)
  install(TARGETS standin_answers standin_nvml standin_redirect LIBRARY DESTINATION lib/emmctl/standin NAMELINK_SKIP)
endif()
install(FILES src/core/plugin/emm_plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/emmctl/plugin)
install(DIRECTORY tools/python/emmctl DESTINATION ${EMM_PYTHON_DIR} FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(CODE "set(EMM_DOCS_FROM \"${PROJECT_SOURCE_DIR}\")
  set(EMM_DOCS_TO \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
  include(\"${PROJECT_SOURCE_DIR}/tools/cmake/shipped_docs.cmake\")")
install(FILES tests/golden/inputs/torch_oom.pickle.gz DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples RENAME oom.pickle.gz)
install(FILES traces/torch/torch_gpt2_train_varlen.jsonl.gz DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples RENAME gpt2.jsonl.gz)
if(NOT EMM_SANITIZE)  # a sanitizer would have to be in the program that links it
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  foreach(header IN LISTS EMM_PUBLIC_HEADERS)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES src/core/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/emmctl/${folder})
  endforeach()
endif()
configure_package_config_file(tools/cmake/emmctlConfig.cmake.in ${PROJECT_BINARY_DIR}/emmctlConfig.cmake
  INSTALL_DESTINATION ${EMM_PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/emmctlConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/emmctlConfig.cmake ${PROJECT_BINARY_DIR}/emmctlConfigVersion.cmake
  DESTINATION ${EMM_PACKAGE_DIR})

# A tree that includes this one links the same name.
add_library(emm INTERFACE)
add_library(emmctl::emm ALIAS emm)
target_link_libraries(emm INTERFACE ${public_layers})
add_library(plugin INTERFACE)
add_library(emmctl::plugin ALIAS plugin)
target_include_directories(plugin INTERFACE ${PROJECT_SOURCE_DIR}/src/core/plugin)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME emmctl)
set(CPACK_PACKAGE_CONTACT "the maintainers of emmctl <maintainers@emmctl.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Says why a CUDA program ran out of memory, and which memory manager serves it")
set(CPACK_PACKAGE_FILE_NAME emmctl_${PROJECT_VERSION}_${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
# glibc 2.34 and g++ 12's library are what Debian 12 has; tests/consumer/packages_test.py compares.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libgcc-s1, libstdc++6 (>= 12), libzstd1, zlib1g")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, cmake, zlib1g-dev, libzstd-dev, pkg-config")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/tools/cmake/triggers)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
if(PROJECT_IS_TOP_LEVEL)
  include(CPack)
endif()
