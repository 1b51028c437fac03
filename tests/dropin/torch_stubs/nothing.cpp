// A release of PyTorch that has none of the symbols for which the allocator's library looks.
extern "C" __attribute__((visibility("default"))) int of_another_release() {
  return 0;
}
