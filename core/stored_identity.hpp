// What an instance and a block's bytes are known by outside the process that has them: on disks, and between nodes.
#pragma once

#include <cstdint>

#include "core/block_key.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"

namespace cenote {

/// The identity of an instance: SHA-256 of its encoded spec.
[[nodiscard]] instance_identity identity_of(const instance_spec& spec);

/// What is kept with a block: the hash of its bytes, mixed with its full key and its instance's identity, so that bytes
/// of another block never pass for it.
[[nodiscard]] std::uint64_t bind_checksum(std::uint64_t hash_of_bytes, const instance_identity& instance,
                                          std::uint32_t group, const full_key& full) noexcept;

}  // namespace cenote
