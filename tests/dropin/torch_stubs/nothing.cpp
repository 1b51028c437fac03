// A release of PyTorch that has none of the symbols.
extern "C" __attribute__((visibility("default"))) int of_another_release() {
  return 0;
}
