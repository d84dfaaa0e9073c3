// Keys of blocks out of tokens, as the clients of the manager compute them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cenote::manager {

/// A key for each whole block of `block_size` tokens; the rest is dropped. The key of a block is a hash of all tokens
/// up to its end. Empty where `block_size` is 0. Thread-safe.
[[nodiscard]] std::vector<std::int64_t> chained_keys(std::span<const std::int64_t> tokens, std::size_t block_size);

}  // namespace cenote::manager
