// What every test says to the thread sanitizer.
//
// oneDNN's library is not instrumented: of the descriptors in its primitive cache, which the threads of a
// process share, the sanitizer sees how they are allocated, copied and compared (memcpy() and the like), and
// not the atomics and locks in between. So it is to leave out what it intercepts of that library. What this
// project reads and writes, also through oneDNN's headers, it goes on checking.

extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier): its name
  return "called_from_lib:libdnnl.so\n";
}
