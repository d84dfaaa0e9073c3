// A number with the noun that it counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cenote {

/// "1 replica", "2 replicas": a noun that takes an s. Thread-safe.
[[nodiscard]] inline std::string count_text(std::uint64_t count, std::string_view noun) {
  std::string text = std::to_string(count).append(" ").append(noun);
  return count == 1 ? text : text + "s";
}

}  // namespace cenote
