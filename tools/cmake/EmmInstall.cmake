# `cmake --install`: the program, the libraries behind it, their headers, and a CMake package, so that
#   find_package(emmctl REQUIRED)
#   target_link_libraries(mine PRIVATE emmctl::emm)
# builds against them; and for a manager in a shared object, which needs one C header and no library,
#   find_package(emmctl REQUIRED COMPONENTS plugin)
#   target_link_libraries(mine PRIVATE emmctl::plugin)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY EMM_LAYERS)
add_library(emm INTERFACE)
add_library(emmctl::emm ALIAS emm)
target_link_libraries(emm INTERFACE ${layers})

set(EMM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/emmctl)
install(TARGETS emmctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
add_library(plugin INTERFACE)
add_library(emmctl::plugin ALIAS plugin)
target_include_directories(plugin INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src/plugin>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/emmctl/plugin>)
install(FILES src/plugin/emm_plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/emmctl/plugin)
install(TARGETS plugin EXPORT emmctl_plugin)
install(EXPORT emmctl_plugin NAMESPACE emmctl:: FILE emmctlPlugin.cmake DESTINATION ${EMM_PACKAGE_DIR})
install(TARGETS libemm libemm_python LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# What `emmctl record` puts into a program.
install(TARGETS emm_recorder LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/emmctl/record)
# The stand-ins for libcuda and libcudart, which managers of others are judged on without a GPU.
if(TARGET standin)
  install(TARGETS standin standin_cudart LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/emmctl/standin NAMELINK_SKIP)
endif()
install(TARGETS emm ${layers} EXPORT emmctl ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/emmctl
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.def" PATTERN cli EXCLUDE)
install(DIRECTORY managers DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/emmctl FILES_MATCHING PATTERN "*.hpp")
install(EXPORT emmctl NAMESPACE emmctl:: FILE emmctlTargets.cmake DESTINATION ${EMM_PACKAGE_DIR})
configure_package_config_file(tools/cmake/emmctlConfig.cmake.in ${PROJECT_BINARY_DIR}/emmctlConfig.cmake
  INSTALL_DESTINATION ${EMM_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/emmctlConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/emmctlConfig.cmake ${PROJECT_BINARY_DIR}/emmctlConfigVersion.cmake
  DESTINATION ${EMM_PACKAGE_DIR})
