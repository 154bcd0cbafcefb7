# Trees that only developers use are compiled by clang where it is installed: without optimisation it takes half the time of
# g++. C is, too, since CMake names precompiled headers as the language that is enabled last wants them.
find_program(EMM_CLANG NAMES clang-14 clang)
find_program(EMM_CLANGXX NAMES clang++-14 clang++)
if(EMM_CLANG AND EMM_CLANGXX)
  set(CMAKE_C_COMPILER ${EMM_CLANG})
  set(CMAKE_CXX_COMPILER ${EMM_CLANGXX})
endif()
