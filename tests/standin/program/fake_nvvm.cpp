// A library of the shape of libNVVM, which needs no GPU: it compiles to nothing. Numba asks for it.
#include <cstddef>
#include <cstring>

#pragma GCC visibility push(default)
extern "C" {
using Program = void*;
constexpr char kPtx[] = ".version 7.8\n.target sm_80\n.address_size 64\n";
int nvvmVersion(int* major, int* minor) {
  *major = 2;
  *minor = 0;
  return 0;
}
int nvvmIRVersion(int* major, int* minor, int* of_debug, int* minor_of_debug) {
  *major = 2;
  *minor = 0;
  *of_debug = 3;
  *minor_of_debug = 1;
  return 0;
}
int nvvmCreateProgram(Program* program) {
  static char made;
  *program = &made;
  return 0;
}
int nvvmDestroyProgram(Program*) { return 0; }
int nvvmAddModuleToProgram(Program, const char*, std::size_t, const char*) { return 0; }
int nvvmLazyAddModuleToProgram(Program, const char*, std::size_t, const char*) { return 0; }
int nvvmVerifyProgram(Program, int, const char**) { return 0; }
int nvvmCompileProgram(Program, int, const char**) { return 0; }
int nvvmGetCompiledResultSize(Program, std::size_t* size) {
  *size = sizeof kPtx;
  return 0;
}
int nvvmGetCompiledResult(Program, char* out) {
  std::memcpy(out, kPtx, sizeof kPtx);
  return 0;
}
int nvvmGetProgramLogSize(Program, std::size_t* size) {
  *size = 1;
  return 0;
}
int nvvmGetProgramLog(Program, char* out) {
  *out = '\0';
  return 0;
}
const char* nvvmGetErrorString(int) { return ""; }
}
#pragma GCC visibility pop
