// The keys that the manager's bench writes and reads: chains of 1,000, made again from their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cenote::bench {

inline constexpr std::size_t chain_keys = 1'000;
inline constexpr std::size_t chain_instances = 100;  ///< of blocks of one spec; there is one of blocks of eight
inline constexpr std::uint64_t wide_chains = 10;     ///< chains of blocks of eight specs

inline constexpr std::int64_t spec_bytes = 1 << 20U;

/// The specs of a block.
enum class chain_kind : std::uint8_t { one_spec = 1, eight_specs = 8 };

/// A number that looks random, the same each time.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t number) noexcept {
  number += 0x9e37'79b9'7f4a'7c15U;
  number = (number ^ (number >> 30U)) * 0xbf58'476d'1ce4'e5b9U;
  number = (number ^ (number >> 27U)) * 0x94d0'49bb'1331'11ebU;
  return number ^ (number >> 31U);
}

/// The instance of a chain, by name.
[[nodiscard]] inline std::string instance_name(chain_kind kind, std::uint64_t chain) {
  return kind == chain_kind::one_spec ? "one-" + std::to_string(chain % chain_instances) : "eight-0";
}

/// A request for all keys of a chain.
template <class Request>
[[nodiscard]] Request chain_request(chain_kind kind, std::uint64_t chain) {
  Request request;
  request.set_instance_id(instance_name(kind, chain));
  request.mutable_block_keys()->Reserve(chain_keys);
  for (std::uint64_t i = 0; i < chain_keys; ++i) {
    request.add_block_keys(static_cast<std::int64_t>(mixed(chain * chain_keys + i)));
  }
  return request;
}

}  // namespace cenote::bench
