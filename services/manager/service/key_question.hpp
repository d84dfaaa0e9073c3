// Keys and masks out of requests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "services/manager/index/key.hpp"
#include "services/manager/registry/terms.hpp"
#include "services/manager/writes/write_requests.hpp"
#include "transport/manager/answer_code.hpp"
#include "transport/manager/proto/shared.pb.h"
#include "transport/manager/token_keys.hpp"

namespace cenote::manager {

namespace proto = ::kv_cache_manager::proto;

/// Bounds of requests.
struct call_limits {
  std::size_t keys = 65'536;
  std::size_t tokens = std::size_t{4} << 20U;
};

[[nodiscard]] inline std::unexpected<rpc_refusal> refuse_count(std::string_view field, std::size_t count,
                                                               std::size_t limit) {
  return refuse(answer_code::invalid_argument, std::string(field) + " has " + std::to_string(count) +
                                                   " elements; at most " + std::to_string(limit) + " are allowed");
}

/// The keys of a request: its block keys, else its keys of 16 bytes, else those of its tokens.
template <class Request>
[[nodiscard]] rpc_outcome<std::vector<cache_key>> keys_of(const Request& request, std::uint32_t block_tokens,
                                                          const call_limits& limits) {
  const auto most = static_cast<int>(limits.keys);
  std::vector<cache_key> keys;
  if (request.block_keys_size() > most)
    return refuse_count("block_keys", static_cast<std::size_t>(request.block_keys_size()), limits.keys);
  if (request.block_keys_size() > 0) {
    keys.reserve(static_cast<std::size_t>(request.block_keys_size()));
    for (const std::int64_t key : request.block_keys()) keys.push_back({.low = static_cast<std::uint64_t>(key)});
    return keys;
  }
  if (request.byte_keys_size() > most)
    return refuse_count("byte_keys", static_cast<std::size_t>(request.byte_keys_size()), limits.keys);
  for (const std::string& bytes : request.byte_keys()) {
    cache_key key;
    if (bytes.size() != sizeof key) {
      return refuse(answer_code::invalid_argument,
                    "byte_keys has a key of " + std::to_string(bytes.size()) + " bytes; right would be 16");
    }
    std::memcpy(&key, bytes.data(), sizeof key);
    keys.push_back(key);
  }
  if (!keys.empty()) return keys;
  if (request.token_ids_size() == 0) {
    return refuse(answer_code::invalid_argument,
                  "block_keys, byte_keys and token_ids are all empty; one of them is needed");
  }
  const auto tokens = static_cast<std::size_t>(request.token_ids_size());
  if (tokens > limits.tokens) return refuse_count("token_ids", tokens, limits.tokens);
  const auto chained = chained_keys({request.token_ids().data(), tokens}, block_tokens);
  if (chained.size() > limits.keys) return refuse_count("the blocks of token_ids", chained.size(), limits.keys);
  for (const std::int64_t key : chained) keys.push_back({.low = static_cast<std::uint64_t>(key)});
  return keys;
}

/// A mask as it was sent.
[[nodiscard]] inline position_mask mask_of(const proto::BlockMask& mask) {
  if (mask.has_bool_masks()) {
    return {.values = std::vector<bool>(mask.bool_masks().values().begin(), mask.bool_masks().values().end())};
  }
  if (mask.info_case() == proto::BlockMask::kOffset) return {.offset = mask.offset()};
  return {};
}

}  // namespace cenote::manager
