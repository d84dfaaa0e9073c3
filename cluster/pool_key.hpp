// A block as the nodes of a pool name it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/block_key.hpp"
#include "core/instance_identity.hpp"

namespace cenote::cluster {

struct pool_key {
  instance_identity identity{};  ///< of the instance
  block_key key;
  bool operator==(const pool_key&) const = default;
};
struct pool_key_hash {
  std::size_t operator()(const pool_key& name) const noexcept {
    return block_key_hash()(name.key) ^ name.identity.spread();
  }
};

}  // namespace cenote::cluster
