# Every library that is not ours, once. tools/packages names the Debian package of each.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)

# Only the headers: libcuda and libcudart are loaded at run time.
set(EMM_CUDA_INCLUDE "")
if(NOT EMM_CUDA STREQUAL "off")
  find_path(EMM_CUDA_INCLUDE_DIR cuda.h
    HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda/include /opt/cuda/include PATH_SUFFIXES include)
  if(EMM_CUDA_INCLUDE_DIR)
    set(EMM_CUDA_INCLUDE ${EMM_CUDA_INCLUDE_DIR})
  elseif(EMM_CUDA STREQUAL "on")
    message(FATAL_ERROR "EMM_CUDA is on, and cuda.h was not found; set CUDA_PATH")
  elseif(NOT EMM_CUDA_SAID)
    message(STATUS "No CUDA toolkit: this build has the simulated device only")
    set(EMM_CUDA_SAID ON CACHE INTERNAL "")
  endif()
endif()

if(EMM_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
