#include "commands/refusal.hpp"

#include <unistd.h>

#include "commands/common.hpp"

namespace cenote {

std::optional<exit_code> refuse(std::span<const finding> findings) {
  std::optional<exit_code> code;
  for (const finding& one : findings) {
    if (one.severity != finding::level::fail) continue;
    complain({error_code::invalid_config, one.remedy});
    if (!one.key.empty()) code = exit_code::usage;
    if (!code) code = exit_code::failed;
  }
  return code;
}

void print_warnings(std::span<const finding> findings) {
  for (const finding& one : findings) {
    if (one.severity == finding::level::warn && !one.key.empty())
      complain({error_code::invalid_config, "warning: " + one.key + ": " + one.state + ": " + one.remedy});
  }
}

}  // namespace cenote
