// Source of the target for which tests/precompiled.h is compiled.
