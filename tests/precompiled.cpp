// The only source of the target that precompiles tests/precompiled.h for all tests.
