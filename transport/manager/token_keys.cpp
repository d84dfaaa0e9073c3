// Keys of blocks out of tokens.
#include "transport/manager/token_keys.hpp"

namespace cenote::manager {

std::vector<std::int64_t> chained_keys(std::span<const std::int64_t> tokens, std::size_t block_size) {
  std::vector<std::int64_t> keys;
  if (block_size == 0) return keys;
  keys.reserve(tokens.size() / block_size);
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i + block_size <= tokens.size(); i += block_size) {
    for (const std::int64_t token : tokens.subspan(i, block_size)) {
      const auto signed_shift = static_cast<std::uint64_t>(static_cast<std::int64_t>(hash) >> 32);
      hash ^= static_cast<std::uint64_t>(token) + 0x9e3779b97f4a7c15ULL + (hash << 12) + signed_shift;
    }
    keys.push_back(static_cast<std::int64_t>(hash));
  }
  return keys;
}

}  // namespace cenote::manager
