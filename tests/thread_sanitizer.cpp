// Options of the thread sanitizer for every test.
//
// oneDNN's library is not instrumented. The threads of a process share the descriptors in its primitive
// cache. The sanitizer sees their allocation, copies and comparisons (memcpy() and the like), but not the
// atomics and locks in between. So it must ignore intercepted calls from that library. It still checks all
// accesses of this project, including those through oneDNN's headers.

extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier): its name
  return "called_from_lib:libdnnl.so\n";
}
