// The target that tests/precompiled.h is compiled for needs a source.
