#include "error.h"

c10::Error::Error(SourceLocation source, std::string text)
    : text_(std::move(text)), where_(source.function) {}
