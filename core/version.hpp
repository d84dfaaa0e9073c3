// The version of the whole: of programs, packages and pages. The C ABI and the protocols have versions of their own.
#pragma once

#include <string_view>

namespace cenote {

/// As "1.2.3": what python/cenote/_version.py has, the one place of it. Ends with a zero byte. Thread-safe.
[[nodiscard]] std::string_view product_version() noexcept;

}  // namespace cenote
