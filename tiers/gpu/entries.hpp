// Submissions as guests of the DRAM tier make them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/session_memory.hpp"

namespace cenote::gpu {

[[nodiscard]] inline memory::submission entry_of(memory::operation what, std::uint32_t group,
                                                 std::span<const std::byte> key = {}) {
  memory::submission made;
  made.op = what;
  made.group = static_cast<std::uint16_t>(group);
  made.key_size = static_cast<std::uint8_t>(key.size());
  std::ranges::copy(key, made.key);
  return made;
}

/// Makes one request of all entries.
inline void close_request(std::vector<memory::submission>& entries) {
  for (std::uint32_t i = 0; i < entries.size(); ++i) entries[i].index = i;
  if (!entries.empty()) entries.back().flags |= memory::submission::flag_last;
}

/// Makes a request of each entry, numbered from 0.
inline void separate_requests(std::vector<memory::submission>& entries) {
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    entries[i].request = i;
    entries[i].flags |= memory::submission::flag_last;
  }
}

}  // namespace cenote::gpu
